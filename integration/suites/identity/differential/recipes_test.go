package differential

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// changes of claims or header members; nil leaves one out.
type changes = map[string]any

// null is a claim that is null.
var null = json.RawMessage("null")

// bearer is a bearer in the making.
type bearer struct {
	world  *world
	idp    *oidc.Provider
	claims changes
	sign   oidc.Sign
	// mint makes the token; nil signs the claims as sign says.
	mint func(idp *oidc.Provider, claims changes) string
	// carry puts the token into the header; nil is Authorization: Bearer.
	carry func(token string) http.Header
	// patient is for what the apiserver first has to prepare: it is asked again.
	patient bool
}

func (b *bearer) header() http.Header {
	token := ""
	if b.mint != nil {
		token = b.mint(b.idp, b.claims)
	} else {
		token = b.idp.Mint(b.claims, b.sign)
	}
	if b.carry != nil {
		return b.carry(token)
	}
	return http.Header{"Authorization": {"Bearer " + token}}
}

// recipe changes a good bearer.
type recipe func(*bearer)

// Claims.

func with(c changes) recipe {
	return func(b *bearer) {
		for name, value := range c {
			if b.claims[name] = value; value == nil {
				delete(b.claims, name)
			}
		}
	}
}

func claim(name string, value any) recipe { return with(changes{name: value}) }

func issuer(edit func(string) string) recipe {
	return func(b *bearer) { b.claims["iss"] = edit(b.idp.Issuer) }
}

// issuerOf says another configuration's issuer, and is signed by this one.
func issuerOf(config string) recipe {
	return func(b *bearer) { b.claims["iss"] = b.world.idps[config].Issuer }
}

func patiently(r recipe) recipe {
	return func(b *bearer) {
		r(b)
		b.patient = true
	}
}

// The signature and its header.

// signed with a key, and with another algorithm than its own unless alg is "".
func signed(key string, alg jose.SignatureAlgorithm) recipe {
	return func(b *bearer) { b.sign.KeyID, b.sign.Alg = key, alg }
}

// anonymously signed: with a key that the header does not name.
func anonymously(key string) recipe {
	return func(b *bearer) { b.sign = oidc.Sign{KeyID: key, Header: changes{"kid": nil}} }
}

func header(name string, value any) recipe { return joseHeader(changes{name: value}) }

func joseHeader(c changes) recipe { return func(b *bearer) { b.sign.Header = c } }

// minted in a way of its own.
func minted(mint func(idp *oidc.Provider, claims changes) string) recipe {
	return func(b *bearer) { b.mint = mint }
}

func unsigned(alg string) recipe {
	return minted(func(idp *oidc.Provider, c changes) string { return idp.Unsigned(c, alg) })
}

// respelled sets bits of the last character that belong to no byte.
func respelled(idp *oidc.Provider, c changes) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	token := idp.Mint(c, oidc.Sign{})
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last^1])
}

// The payload.

// payload signs another text than that of the claims.
func payload(edit func(string) string) recipe {
	return minted(func(idp *oidc.Provider, c changes) string {
		text, err := json.Marshal(c)
		if err != nil {
			panic(err)
		}
		return idp.Mint(nil, oidc.Sign{Payload: []byte(edit(string(text)))})
	})
}

func replaced(old, with string) recipe {
	return payload(func(s string) string {
		if !strings.Contains(s, old) {
			panic("no " + old + " in " + s)
		}
		return strings.Replace(s, old, with, 1)
	})
}

// Values.

func in(d time.Duration) int64 { return time.Now().Add(d).Unix() }

func many(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("group-%03d", i)
	}
	return list
}

func long(n int) string { return strings.Repeat("x", n) }

func levels(n int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", n) + strings.Repeat("]", n))
}

// The header of the request.

// line writes the Authorization line around the token.
func line(before, after string) recipe {
	return authorization(func(token string) []string { return []string{before + token + after} })
}

func authorization(lines func(token string) []string) recipe {
	return func(b *bearer) {
		b.carry = func(token string) http.Header { return http.Header{"Authorization": lines(token)} }
	}
}

func jsonSerialization(token string) []string {
	part := strings.Split(token, ".")
	return []string{`Bearer {"protected":"` + part[0] + `","payload":"` + part[1] + `","signature":"` + part[2] + `"}`}
}

const entryPrefix = "base64url.bearer.authorization.k8s.io."

// entry is the token as a subprotocol.
func entry(token string) string {
	return entryPrefix + base64.RawURLEncoding.EncodeToString([]byte(token))
}

// upgrade is the header of a request for a WebSocket with those subprotocols.
func upgrade(more http.Header, protocols ...string) http.Header {
	h := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"MDEyMzQ1Njc4OWFiY2RlZg=="},
		"Sec-Websocket-Protocol": {strings.Join(protocols, ", ")},
	}
	maps.Copy(h, more)
	return h
}

// carried in another way than by Authorization.
func carried(carry func(token string) http.Header) recipe {
	return func(b *bearer) { b.carry = carry }
}
