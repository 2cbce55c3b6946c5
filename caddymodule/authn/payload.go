package authn

import (
	"encoding/json"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/strictjson"
)

// claims are the members of a JSON object, each as the provider wrote it.
type claims map[string]json.RawMessage

// parseClaims reads a claims object (AUTH-10, AUTH-13). kube-apiserver repairs
// text and takes the last of two members with one name. Here such a payload is
// refused: two spellings must not become one name, and nobody but the provider
// decides which of two values counts.
func parseClaims(payload []byte) (claims, error) { return strictjson.Object(payload) }

// peekClaims reads iss, aud, azp, exp and nbf of a payload whose signature is not
// verified yet, and nothing more: to look at all of a payload that anybody
// may have written costs a hundred times as much. A name that is spelled with
// escapes is passed over. Whoever uses the claims holds them against what
// parseClaims reads after the verification.
func peekClaims(payload []byte) (claims, error) {
	c := make(claims, 5)
	err := strictjson.EachMember(payload, func(quoted, value []byte) bool {
		switch name := quoted[1 : len(quoted)-1]; string(name) {
		case "iss", "aud", "azp", "exp", "nbf":
			if _, twice := c[string(name)]; twice {
				return false
			}
			c[string(name)] = value
		}
		return true
	})
	return c, err
}
