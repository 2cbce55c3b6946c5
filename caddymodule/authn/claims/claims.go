package claims

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// Claims are the members of a JSON object, each as the provider wrote it. Every
// validator reads them through the methods below: none of them guesses inside a
// string or repairs a value (AUTH-10).
type Claims map[string]json.RawMessage

// Parse reads a claims object (AUTH-10, AUTH-13). kube-apiserver repairs text
// and takes the last of two members with one name. Here such a payload is
// refused: two spellings must not become one name, and only the provider decides
// which of two values counts. The errors are those of boundedjson.
func Parse(payload []byte) (Claims, error) { return boundedjson.Object(payload) }

// Peek reads iss, aud, azp, exp and nbf of a payload before its signature is
// verified, and nothing more: reading all of a payload costs a hundred times as
// much, and any client may have written it. A name that is spelled with escapes is
// skipped. After the verification the caller compares with the result of Parse.
func Peek(payload []byte) (Claims, error) {
	c := make(Claims, 5)
	err := boundedjson.EachMember(payload, func(quoted, value []byte) bool {
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

// Unambiguous reads some members of a JSON object. ok is false unless each of
// them stands there at most once, in exactly these letters: some parsers ignore
// case, others take the first of two.
func Unambiguous(object []byte, names ...string) (found Claims, ok bool) {
	if !utf8.Valid(object) {
		return nil, false
	}
	found = make(Claims, len(names))
	err := boundedjson.EachMember(object, func(quoted, value []byte) bool {
		var written string
		if json.Unmarshal(quoted, &written) != nil {
			return false
		}
		for _, name := range names {
			if !strings.EqualFold(name, written) {
				continue
			}
			if written != name || found[written] != nil {
				return false
			}
			found[written] = value
		}
		return true
	})
	return found, err == nil
}

// Text is a claim that is a JSON string.
func (c Claims) Text(name string) (string, bool) {
	raw := c[name]
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// IsNull reports whether a claim is present and null.
func (c Claims) IsNull(name string) bool { return string(c[name]) == "null" }

// IsSet reports whether a claim is present and not null.
func (c Claims) IsSet(name string) bool { return c[name] != nil && !c.IsNull(name) }

// isTrue reports whether a claim is the JSON boolean true.
func (c Claims) isTrue(name string) bool { return string(c[name]) == "true" }

// textOrList is a claim that is a string, an array of strings, null or absent.
// An array with anything but strings in it is refused, null included, of which
// encoding/json would make an empty string.
func (c Claims) textOrList(name string) ([]string, bool) {
	raw := c[name]
	if len(raw) == 0 || string(raw) == "null" {
		return nil, true
	}
	if s, ok := c.Text(name); ok {
		return []string{s}, true
	}
	if raw[0] != '[' {
		return nil, false
	}
	var values []*string
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, false
	}
	list := make([]string, len(values))
	for i, value := range values {
		if value == nil {
			return nil, false
		}
		list[i] = *value
	}
	return list, true
}
