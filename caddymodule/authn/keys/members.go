package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
)

// jwkMembers are the members of a JWK that are read, each as its issuer wrote it.
// go-jose reads certificates and their hashes as well, and refuses a key when one
// of these cannot be read. Issuers publish such keys: with an empty certificate,
// with a public key in its place, with a kid that is a number.
type jwkMembers struct {
	KeyID      json.RawMessage `json:"kid"`
	Use        json.RawMessage `json:"use"`
	Operations json.RawMessage `json:"key_ops"`
	Algorithm  json.RawMessage `json:"alg"`

	Type     json.RawMessage `json:"kty"`
	Curve    json.RawMessage `json:"crv"`
	Modulus  json.RawMessage `json:"n"`
	Exponent json.RawMessage `json:"e"`
	X        json.RawMessage `json:"x"`
	Y        json.RawMessage `json:"y"`

	secretMembers
}

// secretMembers are the members of private and symmetric keys (RFC 7518 sections 6.2.2,
// 6.3.2 and 6.4.1, RFC 8037 section 2, RFC 9964). They are never read: whoever sees
// the key set could sign with such a key.
type secretMembers struct {
	D    json.RawMessage `json:"d"`
	P    json.RawMessage `json:"p"`
	Q    json.RawMessage `json:"q"`
	Dp   json.RawMessage `json:"dp"`
	Dq   json.RawMessage `json:"dq"`
	Qi   json.RawMessage `json:"qi"`
	Oth  json.RawMessage `json:"oth"`
	K    json.RawMessage `json:"k"`
	Priv json.RawMessage `json:"priv"`
}

func (s *secretMembers) present() bool {
	return slices.ContainsFunc([]json.RawMessage{s.D, s.P, s.Q, s.Dp, s.Dq, s.Qi, s.Oth, s.K, s.Priv}, isSet)
}

// isSet reports whether a member says anything: some libraries write null or an
// empty value for each member that they know.
func isSet(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", `""`, "[]":
		return false
	}
	return true
}

// text is a member that is a string, empty for any other.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// keyID is kid. A number is taken as it is written: the signature decides, and kid
// only says which key to try.
func (m *jwkMembers) keyID() string {
	var number json.Number
	if len(m.KeyID) > 0 && m.KeyID[0] != '"' && json.Unmarshal(m.KeyID, &number) == nil {
		return number.String()
	}
	return text(m.KeyID)
}

// mayVerify reports whether the issuer lets the key verify signatures.
func (m *jwkMembers) mayVerify() bool {
	return allows(m.Use, "sig") && allows(m.Operations, "verify") && !m.secretMembers.present()
}

// allows reports whether a member names a use, alone or in a list, of which only
// the texts count. A member that names none limits nothing.
func allows(raw json.RawMessage, use string) bool {
	var list []json.RawMessage
	if !isSet(raw) {
		return true
	}
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	limited := false
	for _, member := range list {
		switch text(member) {
		case use:
			return true
		case "":
		default:
			limited = true
		}
	}
	return !limited
}

// publicKey is nil for a key that cannot be read. What it returns may be of any
// strength.
func (m *jwkMembers) publicKey() crypto.PublicKey {
	switch text(m.Type) {
	case "RSA":
		n, e := number(m.Modulus), number(m.Exponent)
		if n == nil || e == nil || !e.IsInt64() || e.Int64() > maxRSAExponent {
			return nil
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}
	case "EC":
		return m.curvePoint()
	case "OKP":
		if x := octets(m.X); text(m.Curve) == "Ed25519" && len(x) == ed25519.PublicKeySize {
			return ed25519.PublicKey(x)
		}
	}
	return nil
}

// curvePoint is a point of one of the curves of AUTH-4. Each coordinate has the
// size of the curve (RFC 7518 section 6.2.1.2); some issuers leave out leading
// zeros, or add one.
func (m *jwkMembers) curvePoint() crypto.PublicKey {
	curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[text(m.Curve)]
	x, y := number(m.X), number(m.Y)
	if curve == nil || x == nil || y == nil {
		return nil
	}
	bits := curve.Params().BitSize
	if x.BitLen() > bits || y.BitLen() > bits {
		return nil
	}
	size := (bits + 7) / 8
	point := make([]byte, 1+2*size)
	point[0] = 4 // uncompressed
	x.FillBytes(point[1 : 1+size])
	y.FillBytes(point[1+size:])
	key, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil // it does not lie on the curve
	}
	return key
}

// number is a Base64urlUInt (RFC 7518 section 2), nil for none.
func number(raw json.RawMessage) *big.Int {
	if b := octets(raw); len(b) > 0 {
		return new(big.Int).SetBytes(b)
	}
	return nil
}

// octets decodes base64url without padding (RFC 7515 section 2), and what some
// issuers write in its place: with padding, or in the other alphabet.
func octets(raw json.RawMessage) []byte {
	s := strings.TrimRight(text(raw), "=")
	b, err := base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_").Replace(s))
	if err != nil {
		return nil
	}
	return b
}
