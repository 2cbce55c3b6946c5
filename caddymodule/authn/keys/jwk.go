package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

const (
	maxKeys = 100
	// maxTries bounds the keys a token is tried against: all that fit when it
	// has no kid. Any client can send such a token.
	maxTries = 8
	// An RSA key below 2048 bits can be broken. One of 8192 bits takes as
	// long as four of 4096, a large exponent twice as long as the usual one,
	// and both only slow down every verification.
	minRSABits, maxRSABits = 2048, 4096
	maxRSAExponent         = 65537
)

// Key is one key that an issuer publishes. The value stays the same
// across re-reads for as long as the key is published unchanged.
type Key struct {
	id string
	// algorithm is the only one the key is for, empty for any that fits.
	algorithm jose.SignatureAlgorithm
	// key is nil for a key that does not verify signatures of ours. Its id
	// is kept, so that a token that names it does not have the keys read again.
	key crypto.PublicKey
	// withdrawn is set once the issuer no longer publishes the key: what was
	// verified with it no longer counts (AUTH-5).
	withdrawn atomic.Bool
}

// fits reports whether the key makes signatures of an algorithm: the token
// says which algorithm, the key says whether it may (RFC 8725 section 3.1).
func (k *Key) fits(algorithm jose.SignatureAlgorithm) bool {
	if k.algorithm != "" && k.algorithm != algorithm {
		return false
	}
	switch key := k.key.(type) {
	case *rsa.PublicKey:
		switch algorithm {
		case jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512:
			return true
		}
	case *ecdsa.PublicKey:
		switch algorithm {
		case jose.ES256:
			return key.Curve == elliptic.P256()
		case jose.ES384:
			return key.Curve == elliptic.P384()
		case jose.ES512:
			return key.Curve == elliptic.P521()
		}
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	}
	return false
}

// same reports whether two keys are one.
func (k *Key) same(other *Key) bool {
	if k.id != other.id || k.algorithm != other.algorithm {
		return false
	}
	key, ok := k.key.(interface{ Equal(crypto.PublicKey) bool })
	if !ok {
		return k.key == nil && other.key == nil
	}
	return other.key != nil && key.Equal(other.key)
}

// parseKeys reads a JWK set. A key that cannot be used is passed over, as RFC
// 7517 section 5 asks; what is no key set at all, or a huge one, is a fault.
func parseKeys(document []byte) ([]*Key, error) {
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil || set.Keys == nil {
		return nil, idp.Fault("its key set cannot be read")
	}
	if len(*set.Keys) > maxKeys {
		return nil, idp.Fault("its key set has over 100 keys")
	}
	keys := make([]*Key, 0, len(*set.Keys))
	for _, raw := range *set.Keys {
		if key := parseKey(raw); key != nil {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// parseKey returns nil for what has no kid and cannot be used.
func parseKey(raw json.RawMessage) *Key {
	var members jwkMembers
	_ = json.Unmarshal(raw, &members) // what is no object has no members
	key := &Key{id: members.keyID()}
	if members.mayVerify() {
		key.algorithm = jose.SignatureAlgorithm(text(members.Algorithm))
		if key.algorithm == "Ed25519" { // RFC 9864's name for it
			key.algorithm = jose.EdDSA
		}
		key.key = verificationKey(members.publicKey())
	}
	if key.key == nil && key.id == "" {
		return nil
	}
	return key
}

// verificationKey returns a public key that is strong enough, and nil for any other
// key. Symmetric and private keys, which an issuer must not publish, give nil.
func verificationKey(key any) crypto.PublicKey {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); minRSABits <= bits && bits <= maxRSABits &&
			3 <= key.E && key.E <= maxRSAExponent && key.E%2 == 1 {
			return key
		}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return key
		}
	case ed25519.PublicKey:
		if len(key) == ed25519.PublicKeySize {
			return key
		}
	}
	return nil
}

// usable reports whether any key verifies signatures.
func usable(keys []*Key) bool {
	return slices.ContainsFunc(keys, func(k *Key) bool { return k.key != nil })
}
