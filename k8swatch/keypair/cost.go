package keypair

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
)

// What a tenant's certificates and keys may cost the proxy, which serves others
// too: crypto/x509 and crypto/tls bound none of this for what the configuration
// names, and neither a parser nor a verification can be interrupted.
const (
	// MaxRSABits is what crypto/tls allows a server's certificate. Verifying a
	// signature takes eight times as long for twice the bits, and a root's is
	// verified in every handshake.
	MaxRSABits = 8192
	// maxKeySize is the DER of a private key; 8192 bits need 4.7 kB.
	maxKeySize = 16 << 10
	// A bundle is parsed whenever it changes and kept, 2 kB a certificate. The
	// roots that a browser trusts are 150 certificates in 230 kB.
	maxBundleSize, maxBundle = 512 << 10, 512
	// A chain is sent in every handshake.
	maxChainSize, maxChain = 64 << 10, 16
)

var (
	ErrLargeBundle = fmt.Errorf("holds over %d certificates, or over %d KiB", maxBundle, maxBundleSize>>10)
	errLargeChain  = fmt.Errorf("holds over %d certificates, or over %d KiB", maxChain, maxChainSize>>10)
	ErrLargeKey    = fmt.Errorf("holds a certificate with an RSA key of over %d bits", MaxRSABits)
)

// affordable reports whether signatures of the certificate's key may be verified.
func affordable(cert *x509.Certificate) bool {
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	return !ok || key.N.BitLen() <= MaxRSABits
}

// privateRSA is RFC 8017 appendix A.1.2, without further primes.
type privateRSA struct {
	Version                   int
	N, E, D, P, Q, Dp, Dq, Qi *big.Int
}

// pkcs8 is RFC 5208 section 5; attributes may follow.
type pkcs8 struct {
	Version    int
	Algorithm  pkix.AlgorithmIdentifier
	PrivateKey []byte
	Attributes asn1.RawValue `asn1:"optional,tag:0"`
}

var oidRSA = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}

var errKeyCost = errors.New("the private key is too large, or lacks values that every RSA key is written with")

// checkKeyCost refuses what crypto/x509 would take seconds to parse: it raises a
// number of any size to the power of another when an RSA key comes without the
// values of the Chinese remainder theorem, before it looks at whether its
// numbers belong together. What is no RSA key passes.
func checkKeyCost(der []byte) error {
	if len(der) > maxKeySize {
		return errKeyCost
	}
	var wrapped pkcs8
	if _, err := asn1.Unmarshal(der, &wrapped); err == nil {
		if !wrapped.Algorithm.Algorithm.Equal(oidRSA) {
			return nil
		}
		der = wrapped.PrivateKey
	}
	var key privateRSA
	if _, err := asn1.Unmarshal(der, &key); err != nil {
		// Not RSA, or with values missing: of those that are RSA to crypto/x509,
		// none may reach it.
		return checkNotRSA(der)
	}
	// encoding/asn1 passes over what follows in a sequence, such as more primes.
	if exactly, err := asn1.Marshal(key); err != nil || !bytes.Equal(exactly, der) {
		return errKeyCost
	}
	if key.N.BitLen() > MaxRSABits || new(big.Int).Mul(key.P, key.Q).Cmp(key.N) != 0 {
		return errKeyCost
	}
	return nil
}

// checkNotRSA refuses a sequence of a version and two more integers, as an RSA
// key begins.
func checkNotRSA(der []byte) error {
	var begin struct {
		Version int
		N, E    *big.Int
	}
	var sequence asn1.RawValue
	if _, err := asn1.Unmarshal(der, &sequence); err != nil || !sequence.IsCompound {
		return nil
	}
	rest := sequence.Bytes
	for _, into := range []any{&begin.Version, &begin.N, &begin.E} {
		var err error
		if rest, err = asn1.Unmarshal(rest, into); err != nil {
			return nil
		}
	}
	return errKeyCost
}
