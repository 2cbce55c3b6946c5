package claims

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

const (
	// maxAudience bounds aud in bytes before it is read.
	maxAudience = 16 << 10
	// maxDate is the end of the year 9999: what lies behind it is no date but a
	// mistake, or an attempt to overflow one.
	maxDate = 253402300799
)

// Registered are the claims that say where and when a token counts.
type Registered struct {
	Issuer   string
	Audience []string // nil for none
	// Party is azp, empty for none or one that is no string.
	Party   string
	expires int64
	// notBefore is 0 for none: no clock is before 1970.
	notBefore int64
}

// Registered reads iss, aud, azp, exp and nbf under exactly these names; a
// decoder into Go structs would take ISS or Aud as well. iat is not looked at.
func (c Claims) Registered() (r Registered, ok bool) {
	if r.Issuer, ok = c.Issuer(); !ok || r.Issuer == "" {
		return r, false
	}
	if r.Audience, ok = c.Audience(); !ok {
		return r, false
	}
	r.Party, _ = c.Text("azp")
	if r.expires, ok = numericDate(c["exp"]); !ok {
		return r, false
	}
	if c.IsSet("nbf") {
		if r.notBefore, ok = numericDate(c["nbf"]); !ok {
			return r, false
		}
	}
	return r, true
}

// Equal compares all that is in them.
func (r *Registered) Equal(other *Registered) bool {
	return r.Issuer == other.Issuer && slices.Equal(r.Audience, other.Audience) && r.Party == other.Party &&
		r.expires == other.expires && r.notBefore == other.notBefore
}

// Expired is true from exp on (RFC 7519 section 4.1.4), without leeway.
func (r *Registered) Expired(now time.Time) bool { return !now.Before(r.Expiry()) }

// Expiry is exp.
func (r *Registered) Expiry() time.Time { return time.Unix(r.expires, 0) }

// Payload is what go-oidc is given to check: the registered claims under their
// exact names and nothing else. It would refuse a token for the shape of a claim
// that is not mapped (iat, _claim_sources), read names in any case, and turn a
// number into a date in a way that depends on the processor.
func (r *Registered) Payload() ([]byte, error) {
	return json.Marshal(struct {
		Issuer    string   `json:"iss"`
		Audience  []string `json:"aud"`
		Expires   int64    `json:"exp"`
		NotBefore int64    `json:"nbf,omitempty"`
	}{r.Issuer, r.Audience, r.expires, r.notBefore})
}

// Issuer is iss as tokens are compared by it, empty when there is none. ok is
// false for one that is not a name.
func (c Claims) Issuer() (issuer string, ok bool) {
	if c["iss"] == nil {
		return "", true
	}
	if issuer, ok = c.Text("iss"); !ok || issuer == "" {
		return "", false
	}
	// As kube-apiserver does (OpenID Connect Core, section 15.6.2).
	if issuer == "accounts.google.com" {
		issuer = "https://accounts.google.com"
	}
	return issuer, true
}

// Audience is aud, nil for none.
func (c Claims) Audience() ([]string, bool) {
	if len(c["aud"]) > maxAudience {
		return nil, false
	}
	return c.textOrList("aud")
}

// Date is a claim that is a NumericDate (RFC 7519 section 2): a JSON number, of
// which the whole seconds count.
func (c Claims) Date(name string) (time.Time, bool) {
	seconds, ok := numericDate(c[name])
	return time.Unix(seconds, 0), ok
}

// DateOrText is Date, and reads a text that is a number as well: some introspection
// endpoints write their dates so (AUTH-16).
func (c Claims) DateOrText(name string) (time.Time, bool) {
	seconds, ok := wholeSeconds(c[name])
	return time.Unix(seconds, 0), ok
}

func numericDate(raw json.RawMessage) (int64, bool) {
	if len(raw) == 0 || raw[0] == '"' {
		return 0, false
	}
	return wholeSeconds(raw)
}

func wholeSeconds(raw json.RawMessage) (int64, bool) {
	seconds, ok := boundedjson.Number(raw)
	if !ok || math.Abs(seconds) > maxDate {
		return 0, false
	}
	return int64(math.Floor(seconds)), true
}
