package authn

import (
	"bytes"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
)

// algorithms are the accepted signature algorithms (AUTH-4). `none` and the HMACs
// are never among them: with these, everyone who knows the public key could sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512,
	jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512,
	jose.EdDSA,
}

// The parts that are read before the signature is verified are bounded, since any
// client may have written them. The header, which go-jose reads several times, has
// room for a certificate and some dozens of members.
const (
	maxHeaderPart   = 4 << 10
	maxHeaderCommas = 64
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
	claims.Registered
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
	c, err := claims.Peek(signature.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, errClaims
	}
	r, ok := c.Registered()
	if !ok {
		return nil, errClaims
	}
	return &jwt{
		raw:        token,
		signature:  signature,
		Registered: r,
	}, nil
}

// verifiedClaims reads all claims of a token, once its signature is verified.
// They must say what was seen without.
func (t *jwt) verifiedClaims() (claims.Claims, *Unauthenticated) {
	c, err := claims.Parse(t.signature.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, errClaims
	}
	if r, ok := c.Registered(); !ok || !r.Equal(&t.Registered) {
		return nil, errClaims
	}
	return c, nil
}

// payloadSize is how many bytes the claims were read from.
func (t *jwt) payloadSize() int { return len(t.signature.UnsafePayloadWithoutVerification()) }

// canonical reports whether each part is the one base64url spelling of its
// bytes, so that a token cannot be written in several ways under one
// signature and what go-jose verifies is what was sent; and whether the
// header has no more members than it may.
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

// claimedExpiry is the exp of a JWS that was not verified here, if it has one. It
// may shorten how long an answer is remembered, and nothing else.
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
	c, err := claims.Peek(payload)
	if err != nil {
		return time.Time{}, false
	}
	return c.Date("exp")
}
