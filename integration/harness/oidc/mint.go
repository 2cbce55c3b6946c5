package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // for the 384 and 512 algorithms
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Sign says how Mint signs.
type Sign struct {
	// KeyID is the key; empty is the provider's current one.
	KeyID string
	// Alg replaces the algorithm of the key, e.g. PS256 for an RSA key.
	Alg jose.SignatureAlgorithm
	// Header is merged into the protected header; a nil value removes a field.
	Header map[string]any
	// Payload is signed in place of the claims, byte for byte.
	Payload []byte
}

// Claims are those of a good token for that user: this issuer, audience
// ClientID, valid from now for ten minutes, with the user's own claims. The
// changes are merged in; a nil value removes a claim (use json.RawMessage for
// a JSON null).
func (p *Provider) Claims(username string, changes map[string]any) map[string]any {
	u, err := p.storage.userNamed(username)
	if err != nil {
		panic("oidc: no user " + username)
	}
	now := time.Now()
	c := u.claims()
	maps.Copy(c, map[string]any{
		"iss": p.Issuer, "sub": u.Subject, "aud": ClientID, "jti": rand.Text(),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(),
	})
	merge(c, changes)
	return c
}

// Mint signs claims. It panics on a key that does not exist or does not fit
// the algorithm: that is a mistake of the test.
func (p *Provider) Mint(claims map[string]any, s Sign) string {
	k := p.keys.get(s.KeyID)
	alg := s.Alg
	if alg == "" {
		alg = k.alg
	}
	header := map[string]any{"alg": string(alg), "kid": k.id, "typ": "JWT"}
	merge(header, s.Header)
	signed := signingInput(header, claims, s.Payload)
	return signed + "." + b64(signature(k.signer, alg, signed))
}

// Token is Mint of Claims: the T(x) of the field cases.
func (p *Provider) Token(username string, changes map[string]any) string {
	return p.Mint(p.Claims(username, changes), Sign{})
}

// Unsigned has that alg ("none", "nOnE") and an empty signature.
func (p *Provider) Unsigned(claims map[string]any, alg string) string {
	return signingInput(map[string]any{"alg": alg, "typ": "JWT"}, claims, nil) + "."
}

// SymmetricWithPublicKey is an HS256 token whose secret is the PEM of a public
// key, which everyone knows.
func (p *Provider) SymmetricWithPublicKey(claims map[string]any, keyID string) string {
	der, err := x509.MarshalPKIXPublicKey(p.PublicKey(keyID))
	if err != nil {
		panic(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	signed := signingInput(map[string]any{"alg": "HS256", "kid": keyID, "typ": "JWT"}, claims, nil)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	return signed + "." + b64(mac.Sum(nil))
}

// WrongAlgorithm signs with a key but announces another algorithm, e.g. RS256
// over an EC key.
func (p *Provider) WrongAlgorithm(claims map[string]any, keyID, announced string) string {
	return p.Mint(claims, Sign{KeyID: keyID, Header: map[string]any{"alg": announced}})
}

// EmbeddedKey is signed with a stranger's key, which its header carries (jwk).
func (p *Provider) EmbeddedKey(claims map[string]any) string {
	stranger, err := newKey(jose.RS256)
	if err != nil {
		panic(err)
	}
	public, err := (&jose.JSONWebKey{Key: stranger.Public(), KeyID: "stranger", Algorithm: "RS256", Use: "sig"}).MarshalJSON()
	if err != nil {
		panic(err)
	}
	header := map[string]any{"alg": "RS256", "typ": "JWT", "kid": "stranger", "jwk": json.RawMessage(public)}
	signed := signingInput(header, claims, nil)
	return signed + "." + b64(signature(stranger, jose.RS256, signed))
}

// KeyURL is signed with a stranger's key, which its header says to be at that
// URL (jku); ElsewhereURL counts who believes it.
func (p *Provider) KeyURL(claims map[string]any, url string) string {
	stranger, err := newKey(jose.RS256)
	if err != nil {
		panic(err)
	}
	signed := signingInput(map[string]any{"alg": "RS256", "typ": "JWT", "kid": "stranger", "jku": url}, claims, nil)
	return signed + "." + b64(signature(stranger, jose.RS256, signed))
}

// FlipSignatureBit changes one bit in the middle of the signature.
func FlipSignatureBit(token string) string {
	i := strings.LastIndexByte(token, '.')
	sig, err := base64.RawURLEncoding.DecodeString(token[i+1:])
	if err != nil || len(sig) == 0 {
		panic("oidc: no signature to change")
	}
	sig[len(sig)/2] ^= 1
	return token[:i+1] + b64(sig)
}

// OpaqueToken is an opaque access token of that user, as a login of that client
// gives one.
func (p *Provider) OpaqueToken(username, clientID string) string {
	u, err := p.storage.userNamed(username)
	if err != nil {
		panic("oidc: no user " + username)
	}
	p.storage.mu.Lock()
	g := p.storage.newGrant(&grant{client: clientID, subject: u.Subject, audience: []string{clientID}, scopes: []string{"openid"}, at: time.Now()})
	p.storage.mu.Unlock()
	token, err := op.CreateBearerToken(g.id, u.Subject, p.provider.Crypto())
	if err != nil {
		panic(err)
	}
	return token
}

// APIToken is a long-lived opaque token of a machine, good for nothing but
// token exchange. The ~ keeps it from being base64: the library takes what it
// can decode for an access token in its old, unauthenticated encryption, and
// one time in many finds a subject in the noise.
func (p *Provider) APIToken(username string) string {
	return p.registerAPIToken(username, "api~"+rand.Text()+rand.Text())
}

// APITokenJWS is the same in the form of a JWS without an issuer, as Kanidm's.
func (p *Provider) APITokenJWS(username string) string {
	signer, err := newKey(jose.ES256)
	if err != nil {
		panic(err)
	}
	signed := signingInput(map[string]any{"alg": "ES256", "kid": "api"}, map[string]any{"token_id": rand.Text()}, nil)
	return p.registerAPIToken(username, signed+"."+b64(signature(signer, jose.ES256, signed)))
}

func (p *Provider) registerAPIToken(username, token string) string {
	u, err := p.storage.userNamed(username)
	if err != nil {
		panic("oidc: no user " + username)
	}
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	p.storage.api[token] = u.Subject
	return token
}

func merge(dst, changes map[string]any) {
	for name, value := range changes {
		if value == nil {
			delete(dst, name)
		} else {
			dst[name] = value
		}
	}
}

func signingInput(header, claims map[string]any, payload []byte) string {
	h, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	if payload == nil {
		if payload, err = json.Marshal(claims); err != nil {
			panic(err)
		}
	}
	return b64(h) + "." + b64(payload)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signature implements RFC 7518, section 3, and RFC 8037 for the asymmetric
// algorithms. A library would refuse the combinations that tests need.
func signature(signer crypto.Signer, alg jose.SignatureAlgorithm, signed string) []byte {
	if k, ok := signer.(ed25519.PrivateKey); ok {
		return ed25519.Sign(k, []byte(signed))
	}
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[string(alg)[2:]]
	h := hash.New()
	h.Write([]byte(signed))
	digest := h.Sum(nil)
	switch k := signer.(type) {
	case *rsa.PrivateKey:
		var opts crypto.SignerOpts = hash
		if strings.HasPrefix(string(alg), "PS") {
			opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
		}
		sig, err := k.Sign(rand.Reader, digest, opts)
		if err != nil {
			panic(err)
		}
		return sig
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, digest)
		if err != nil {
			panic(err)
		}
		size := (k.Curve.Params().BitSize + 7) / 8
		sig := make([]byte, 2*size)
		r.FillBytes(sig[:size])
		s.FillBytes(sig[size:])
		return sig
	default:
		panic(fmt.Sprintf("oidc: no signature with %T", signer))
	}
}
