package authn

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// kind is what a bearer is, as far as can be told without verifying it
// (AUTH-14). It decides which server may see the bearer: a server that sees a
// token can use it.
type kind int

const (
	// malformed is what looks like JOSE and cannot be read in one way only,
	// or is no token at all. It is sent nowhere.
	malformed kind = iota
	// opaque is a token only its issuer can read: what is not JOSE, and a JWE
	// whose header names no issuer.
	opaque
	// signed is a JWS whose payload names an issuer.
	signed
	// signedAnonymous is a JWS whose payload names none.
	signedAnonymous
	// encrypted is a JWE whose header names an issuer (RFC 7519 section 5.3).
	encrypted
)

// classify tells what a bearer is, and the issuer of those that name one.
//
// The parts of a token are read twice. A tolerant reading, which accepts every
// spelling of base64 and JSON, finds out whether any server could take the token
// for JOSE. A strict reading demands the one spelling of the standards. A token
// that passes only the tolerant reading is malformed, never opaque: a token of
// another issuer must not be sent on because one of its letters is wrong. For the
// same reason iss in other letters, or a second iss, refuses a token.
func classify(token string) (kind, string) {
	if !idp.IsBearer(token) || strings.Contains(token, `{"`) { // JOSE as JSON (RFC 7515 section 7.2)
		return malformed, ""
	}
	header, rest, dotted := strings.Cut(token, ".")
	if !dotted {
		return opaque, ""
	}
	second, _, _ := strings.Cut(rest, ".")
	if !resemblesJSON(header) && !resemblesJSON(second) {
		return opaque, ""
	}
	parts := strings.Split(token, ".")
	decoded := make([][]byte, len(parts))
	for i, part := range parts {
		var ok bool
		if decoded[i], ok = decodePart(part); !ok {
			return malformed, ""
		}
	}
	h, ok := claims.Unambiguous(decoded[0], "alg", "enc", "iss", "b64", "zip")
	if !ok || len(h["alg"]) == 0 || h["alg"][0] != '"' {
		return malformed, ""
	}
	switch len(parts) {
	case 3:
		return classifyJWS(h, decoded[1], decoded[2])
	case 5:
		return classifyJWE(h)
	}
	return malformed, ""
}

// classifyJWS takes the issuer from the payload. One in the header must be
// the same: some read it there.
func classifyJWS(header claims.Claims, payload, signature []byte) (kind, string) {
	algorithm, _ := header.Text("alg")
	if len(signature) == 0 || strings.EqualFold(algorithm, "none") || header["enc"] != nil ||
		header["b64"] != nil || header["zip"] != nil { // the payload is another then
		return malformed, ""
	}
	p, ok := claims.Unambiguous(payload, "iss")
	if !ok {
		return malformed, ""
	}
	issuer, ok := p.Issuer()
	claimed, ok2 := header.Issuer()
	switch {
	case !ok || !ok2 || claimed != "" && claimed != issuer:
		return malformed, ""
	case issuer == "":
		return signedAnonymous, ""
	}
	return signed, issuer
}

func classifyJWE(header claims.Claims) (kind, string) {
	issuer, ok := header.Issuer()
	switch {
	case !ok || len(header["enc"]) == 0 || header["enc"][0] != '"':
		return malformed, ""
	case issuer == "":
		return opaque, ""
	}
	return encrypted, issuer
}

// resemblesJSON reports whether any server could read a part of a token as a JSON
// object: either alphabet of base64, padded or not, and other characters skipped,
// as many decoders do, or taken for the end of something else.
func resemblesJSON(part string) bool {
	part = standardAlphabet.Replace(part)
	pieces := strings.FieldsFunc(part, func(r rune) bool { return !isBase64(r) })
	return slices.ContainsFunc(pieces, encodesObject) || len(pieces) > 1 && encodesObject(strings.Join(pieces, ""))
}

func isBase64(r rune) bool {
	return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '+' || r == '/'
}

// encodesObject reports whether base64 encodes what may begin a JSON object, with
// blanks or a byte order mark in front, and broken further on. Random bytes look
// like this once in 60,000 times. An object without members is of no concern.
func encodesObject(part string) bool {
	decoded := make([]byte, base64.RawStdEncoding.DecodedLen(len(part)))
	n, _ := base64.RawStdEncoding.Decode(decoded, []byte(part)) // as far as it goes
	text := bytes.TrimPrefix(decoded[:n], []byte("\ufeff"))
	text, object := bytes.CutPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
	text = bytes.TrimLeft(text, " \t\r\n")
	return object && len(text) > 0 && text[0] == '"'
}

var standardAlphabet = strings.NewReplacer("-", "+", "_", "/")

// decodePart decodes the one base64url spelling of its bytes.
func decodePart(part string) ([]byte, bool) {
	if strings.ContainsAny(part, "\r\n") { // which the decoder skips
		return nil, false
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(part)
	return decoded, err == nil
}
