package oidc

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"slices"
	"strings"
	"sync"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// The keys every provider starts with, both published; K1 signs.
const (
	K1 = "k1" // RS256
	E1 = "e1" // ES256
)

// key is one signing key. It is also what the library wants to see of it.
type key struct {
	id     string
	alg    jose.SignatureAlgorithm
	signer crypto.Signer
}

// keyRing holds all keys ever made: a withdrawn one can still sign, as the key
// of a provider that was compromised can.
type keyRing struct {
	mu        sync.Mutex
	keys      map[string]*key
	published []string
	current   string
}

func newKeyRing() (*keyRing, error) {
	r := &keyRing{keys: map[string]*key{}, current: K1}
	k1, err := firstKeys.next()
	if err != nil {
		return nil, err
	}
	r.publish(&key{id: K1, alg: jose.RS256, signer: k1})
	return r, r.add(E1, jose.ES256)
}

// firstKeys are those of K1.
var firstKeys rsaKeys

// rsaKeys are so many RSA keys that providers which run at the same time have different
// ones. A key costs a tenth of a second, and a test may have a hundred providers.
type rsaKeys struct {
	mu    sync.Mutex
	keys  [16]crypto.Signer
	given int
}

func (r *rsaKeys) next() (crypto.Signer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := &r.keys[r.given%len(r.keys)]
	r.given++
	if *slot == nil {
		made, err := newKey(jose.RS256)
		if err != nil {
			return nil, fmt.Errorf("making signing key %s: %w", K1, err)
		}
		*slot = made
	}
	return *slot, nil
}

func (r *keyRing) add(id string, alg jose.SignatureAlgorithm) error {
	signer, err := newKey(alg)
	if err != nil {
		return fmt.Errorf("making signing key %s: %w", id, err)
	}
	r.publish(&key{id: id, alg: alg, signer: signer})
	return nil
}

func (r *keyRing) publish(k *key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[k.id] = k
	if !slices.Contains(r.published, k.id) {
		r.published = append(r.published, k.id)
	}
}

func (r *keyRing) get(id string) *key {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == "" {
		id = r.current
	}
	k := r.keys[id]
	if k == nil {
		panic("oidc: no signing key " + id)
	}
	return k
}

func newKey(alg jose.SignatureAlgorithm) (crypto.Signer, error) {
	switch {
	case alg == jose.EdDSA:
		_, k, err := ed25519.GenerateKey(rand.Reader)
		return k, err
	case alg == jose.ES256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case alg == jose.ES384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case alg == jose.ES512:
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case strings.HasPrefix(string(alg), "RS"), strings.HasPrefix(string(alg), "PS"):
		return rsa.GenerateKey(rand.Reader, 2048)
	default:
		return nil, fmt.Errorf("algorithm %s has no key", alg)
	}
}

// AddKey makes a signing key and publishes it; UseKey signs with it.
func (p *Provider) AddKey(id string, alg jose.SignatureAlgorithm) error { return p.keys.add(id, alg) }

// AddSigner is AddKey with a key of the test's own, a weak one for instance.
func (p *Provider) AddSigner(id string, alg jose.SignatureAlgorithm, signer crypto.Signer) {
	p.keys.publish(&key{id: id, alg: alg, signer: signer})
}

// UseKey makes the provider, and Mint without a KeyID, sign with that key.
func (p *Provider) UseKey(id string) {
	p.keys.get(id)
	p.keys.mu.Lock()
	defer p.keys.mu.Unlock()
	p.keys.current = id
}

// WithdrawKey takes a key out of the published set. Mint can go on using it.
func (p *Provider) WithdrawKey(id string) {
	p.keys.mu.Lock()
	defer p.keys.mu.Unlock()
	p.keys.published = slices.DeleteFunc(p.keys.published, func(s string) bool { return s == id })
}

// PublicKey is the public part of a key.
func (p *Provider) PublicKey(id string) crypto.PublicKey { return p.keys.get(id).signer.Public() }

// op.SigningKey of the library: the private key in Key.
type signingKey struct{ *key }

func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return k.alg }
func (k signingKey) Key() any                                    { return k.signer }
func (k signingKey) ID() string                                  { return k.id }

// op.Key of the library: the public key in Key.
type publicKey struct{ *key }

func (k publicKey) ID() string                         { return k.id }
func (k publicKey) Algorithm() jose.SignatureAlgorithm { return k.alg }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return k.signer.Public() }

// SigningKey implements op.Storage.
func (s *storage) SigningKey(context.Context) (op.SigningKey, error) {
	return signingKey{s.keys.get("")}, nil
}

// SignatureAlgorithms implements op.Storage: what discovery announces.
func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	var algs []jose.SignatureAlgorithm
	for _, id := range s.keys.published {
		if alg := s.keys.keys[id].alg; !slices.Contains(algs, alg) {
			algs = append(algs, alg)
		}
	}
	return algs, nil
}

// KeySet implements op.Storage: the published keys.
func (s *storage) KeySet(context.Context) ([]op.Key, error) {
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	keys := make([]op.Key, 0, len(s.keys.published))
	for _, id := range s.keys.published {
		keys = append(keys, publicKey{s.keys.keys[id]})
	}
	return keys, nil
}
