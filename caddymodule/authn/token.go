package authn

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// algorithms are the signatures that count (AUTH-4). `none` and the HMACs
// never do: with those, whoever knows the public key could sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512,
	jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512,
	jose.EdDSA,
}

// What is read before anything is verified is bounded, since anybody may have
// written it: the header, which go-jose reads several times over, to one with
// room for a certificate and some dozens of members, and aud to some hundreds.
const (
	maxHeaderPart   = 4 << 10
	maxHeaderCommas = 64
	maxAudience     = 16 << 10
)

// otherTypes are the typ of tokens that an issuer signs for the same
// audience and that are not about a caller (RFC 8725 section 3.12).
var otherTypes = map[string]bool{
	"logout+jwt":              true,
	"secevent+jwt":            true,
	"token-introspection+jwt": true,
}

// jwt is a token that was read. Nothing in it may be believed before its
// signature was verified.
type jwt struct {
	raw       string
	signature *jose.JSONWebSignature
	algorithm jose.SignatureAlgorithm
	// keyID is the kid, empty for none.
	keyID string
	registered
}

// registered are the claims that say where and when a token counts.
type registered struct {
	issuer   string
	audience []string // nil for none
	// party is azp, empty for none or one that is no string.
	party   string
	expires int64
	// notBefore is 0 for none: no clock is before 1970.
	notBefore int64
}

func (r *registered) equal(other *registered) bool {
	return r.issuer == other.issuer && slices.Equal(r.audience, other.audience) && r.party == other.party &&
		r.expires == other.expires && r.notBefore == other.notBefore
}

// looksSigned is the check before all others, cheaper than a hash: three
// parts, none of them empty. A JWE has five.
func looksSigned(token string) bool {
	if len(token) > maxToken {
		return false
	}
	header, rest, ok := strings.Cut(token, ".")
	payload, signature, ok2 := strings.Cut(rest, ".")
	return ok && ok2 && header != "" && len(header) <= maxHeaderPart && payload != "" && signature != "" &&
		strings.IndexByte(signature, '.') < 0
}

// parseJWT reads a compact JWS with one of our algorithms. It may have no aud.
func parseJWT(token string) (*jwt, *Unauthenticated) {
	if !looksSigned(token) || !canonical(token) {
		return nil, errMalformed
	}
	signature, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		if _, ok := err.(*jose.ErrUnexpectedSignatureAlgorithm); ok {
			return nil, errAlgorithm
		}
		return nil, errMalformed
	}
	header := signature.Signatures[0].Protected
	if !plainHeader(header) {
		return nil, errMalformed
	}
	c, err := peekClaims(signature.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, errClaims
	}
	r, ok := c.registered()
	if !ok {
		return nil, errClaims
	}
	return &jwt{
		raw:        token,
		signature:  signature,
		algorithm:  jose.SignatureAlgorithm(header.Algorithm),
		keyID:      header.KeyID,
		registered: r,
	}, nil
}

// verifiedClaims reads all claims of a token, once its signature is verified.
// They must say what was seen without.
func (t *jwt) verifiedClaims() (claims, *Unauthenticated) {
	c, err := parseClaims(t.signature.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, errClaims
	}
	if r, ok := c.registered(); !ok || !r.equal(&t.registered) {
		return nil, errClaims
	}
	return c, nil
}

// canonical reports whether each part is the one base64url spelling of its
// bytes, so that a token cannot be written in several ways under one
// signature and what go-jose verifies is what was sent; and whether the
// header has a bearable number of members.
func canonical(token string) bool {
	var header []byte
	for part := range strings.SplitSeq(token, ".") {
		decoded, ok := decodePart(part)
		if !ok {
			return false
		}
		if header == nil {
			header = decoded
		}
	}
	return bytes.Count(header, []byte{','}) <= maxHeaderCommas
}

// plainHeader refuses header members that would change what is verified, or
// what the token is. An embedded key (jwk, x5c) or the address of one (jku,
// x5u) is left unread: keys come from the key set only.
func plainHeader(header jose.Header) bool {
	for _, name := range []jose.HeaderKey{"crit", "b64", "zip", "enc"} {
		if _, ok := header.ExtraHeaders[name]; ok {
			return false
		}
	}
	switch typ := header.ExtraHeaders[jose.HeaderType].(type) {
	case nil:
		return true
	case string:
		typ = strings.ToLower(typ)
		return !otherTypes[strings.TrimPrefix(typ, "application/")]
	}
	return false
}

// registered reads iss, aud, azp, exp and nbf under exactly these names; a decoder
// into Go structs would take ISS or Aud as well. iat is not looked at.
func (c claims) registered() (r registered, ok bool) {
	if r.issuer, ok = c.issuer(); !ok || r.issuer == "" {
		return r, false
	}
	if r.audience, ok = c.audience(); !ok {
		return r, false
	}
	r.party, _ = c.text("azp")
	if r.expires, ok = numericDate(c["exp"]); !ok {
		return r, false
	}
	if raw := c["nbf"]; raw != nil && string(raw) != "null" {
		if r.notBefore, ok = numericDate(raw); !ok {
			return r, false
		}
	}
	return r, true
}

// audience is aud, nil for none.
func (c claims) audience() ([]string, bool) {
	if len(c["aud"]) > maxAudience {
		return nil, false
	}
	return c.textOrList("aud")
}

// maxDate is the end of the year 9999: what lies behind it is no date but a
// mistake, or an attempt to overflow one.
const maxDate = 253402300799

// numericDate reads a NumericDate (RFC 7519 section 2): a JSON number, of which
// the whole seconds count.
func numericDate(raw json.RawMessage) (int64, bool) {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(seconds) > maxDate {
		return 0, false
	}
	return int64(math.Floor(seconds)), true
}

// expired is true from exp on (RFC 7519 section 4.1.4), without leeway.
func (r *registered) expired(now time.Time) bool {
	return !now.Before(r.expiry())
}

func (r *registered) expiry() time.Time { return time.Unix(r.expires, 0) }

// claimedExpiry is the exp of a JWS that nobody here has verified, if it shows
// one. It may shorten what is remembered, and nothing else.
func claimedExpiry(token string) (time.Time, bool) {
	if !looksSigned(token) {
		return time.Time{}, false
	}
	_, rest, _ := strings.Cut(token, ".")
	part, _, _ := strings.Cut(rest, ".")
	payload, ok := decodePart(part)
	if !ok {
		return time.Time{}, false
	}
	c, err := peekClaims(payload)
	if err != nil {
		return time.Time{}, false
	}
	exp, ok := numericDate(c["exp"])
	return time.Unix(exp, 0), ok
}

// payload is what go-oidc is given to check: the registered claims under
// their exact names and nothing else. It would refuse a token for the shape
// of a claim nobody mapped (iat, _claim_sources), read names in any case, and
// turn a number into a date in a way that depends on the processor.
func (r *registered) payload() ([]byte, error) {
	return json.Marshal(struct {
		Issuer    string   `json:"iss"`
		Audience  []string `json:"aud"`
		Expires   int64    `json:"exp"`
		NotBefore int64    `json:"nbf,omitempty"`
	}{r.issuer, r.audience, r.expires, r.notBefore})
}
