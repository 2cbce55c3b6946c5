package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/coreos/go-oidc/v3/oidc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// verifiedFor is how long a locally verified token is remembered (AUTH-12).
const verifiedFor = 10 * time.Minute

// Config says what JwtAuthenticators accept.
type Config struct {
	// UID is that of the ProxyKubeApi, Hash a digest of its resolved
	// auth_config. Together they keep what one configuration accepted apart
	// from every other.
	UID  types.UID
	Hash string
	JWT  []JWT
}

// JWT is one authenticator, validated and compiled by
// k8s.io/apiserver/pkg/apis/apiserver/validation with a safecel.Compiler.
type JWT struct {
	Authenticator apiserver.JWTAuthenticator
	Mapper        authenticationcel.CELMapper
}

// JWTAuthenticators accepts tokens that one of several issuers signed
// (AUTH-4). It is safe for concurrent use.
type JWTAuthenticators struct {
	scope   scope
	cache   *Cache
	now     func() time.Time
	members []*jwtAuthenticator
	release []func()
	// evaluations bounds the tokens whose expressions are run at once.
	evaluations lanes
}

// jwtAuthenticator is one entry of auth_config.jwt.
type jwtAuthenticator struct {
	issuer    string
	audiences []string
	keys      keyShare
	mapping   *mapping
	// evaluations are the cluster's.
	evaluations lanes
}

var errNoAudience = errors.New("the authenticator has no audience")

// NewJWT makes authenticators of a configuration. It does no I/O: keys are
// read when a token needs them, or by Refresh. Close gives the key sets back.
func NewJWT(cfg Config, keys *KeySets, cache *Cache) (*JWTAuthenticators, error) {
	a := &JWTAuthenticators{
		scope: cache.newScope(cfg.UID, cfg.Hash),
		cache: cache,
		now:   keys.now,

		evaluations: newLanes(),
	}
	for i := range cfg.JWT {
		if err := a.add(&cfg.JWT[i], keys); err != nil {
			a.Close()
			return nil, fmt.Errorf("making authenticator %d: %w", i, err)
		}
	}
	return a, nil
}

func (a *JWTAuthenticators) add(j *JWT, keys *KeySets) error {
	issuer := &j.Authenticator.Issuer
	if len(issuer.Audiences) == 0 {
		return errNoAudience
	}
	set, release, err := keys.acquire(issuer.URL, issuer.DiscoveryURL, issuer.CertificateAuthority)
	if err != nil {
		return err
	}
	a.release = append(a.release, release)
	a.members = append(a.members, &jwtAuthenticator{
		issuer:    issuer.URL,
		audiences: slices.Clone(issuer.Audiences),
		keys:      newKeyShare(set),
		mapping:   newMapping(&j.Authenticator, j.Mapper),

		evaluations: a.evaluations,
	})
	return nil
}

// Authenticate validates a token, or remembers what it was found to be.
func (a *JWTAuthenticators) Authenticate(ctx context.Context, token string) (*Result, error) {
	if !looksSigned(token) {
		if kind, _ := classify(token); kind == opaque {
			return nil, errOpaque
		}
		return nil, errMalformed
	}
	key := cacheKey{scope: a.scope, token: digest(token)}
	if result, err, ok := a.cache.lookup(&key); ok {
		return result, err
	}
	return a.validate(ctx, key, token)
}

// digest hashes a token in place: a copy of each bearer would be the only
// allocation of a cache hit. The bytes are only read.
func digest(token string) [sha256.Size]byte {
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token)))
}

// validate is Authenticate for a token nothing is remembered of. What can be
// seen without the signature is looked at first, and refused without being
// remembered: a flood of such tokens fills no cache and reaches no provider.
func (a *JWTAuthenticators) validate(ctx context.Context, key cacheKey, token string) (*Result, error) {
	claim, refused := a.read(token)
	if refused != nil {
		return nil, refused
	}
	return a.cache.load(ctx, key, func(ctx context.Context) (answer, error) { return a.verify(ctx, claim) })
}

// judge implements validator.
func (a *JWTAuthenticators) judge(ctx context.Context, token string) (answer, error) {
	claim, refused := a.read(token)
	if refused != nil {
		return answer{}, refused
	}
	return a.verify(ctx, claim)
}

// issuers implements validator.
func (a *JWTAuthenticators) issuers() []string {
	var issuers []string
	for _, member := range a.members {
		issuers = append(issuers, member.issuer)
	}
	return issuers
}

// remembers implements inner.
func (a *JWTAuthenticators) remembers() scope { return a.scope }

// unverified is a token that an authenticator may accept, by what it says of
// itself.
type unverified struct {
	*jwt
	member *jwtAuthenticator
	// matched is the audience that the token and the authenticator share.
	matched string
}

// read looks at everything that needs no signature.
func (a *JWTAuthenticators) read(token string) (unverified, *Unauthenticated) {
	read, refused := parseJWT(token)
	if refused != nil {
		return unverified{}, refused
	}
	member, audience, refused := a.choose(read)
	return unverified{read, member, audience}, refused
}

func (a *JWTAuthenticators) verify(ctx context.Context, token unverified) (answer, error) {
	return token.member.authenticate(ctx, token.jwt, token.matched, a.now)
}

// choose finds the authenticator for the iss and aud of a token, and the
// audience that matched. Nothing here is verified yet.
func (a *JWTAuthenticators) choose(token *jwt) (*jwtAuthenticator, string, *Unauthenticated) {
	if len(token.audience) == 0 {
		return nil, "", errClaims
	}
	refused := errUnknownIssuer
	for _, member := range a.members {
		if member.issuer != token.issuer {
			continue
		}
		refused = errAudience
		for _, audience := range token.audience {
			if !slices.Contains(member.audiences, audience) {
				continue
			}
			if token.expired(a.now()) {
				return nil, "", errExpired
			}
			return member, audience, nil
		}
	}
	return nil, "", refused
}

// authenticate verifies a token and maps its claims.
func (m *jwtAuthenticator) authenticate(ctx context.Context, token *jwt, audience string, now func() time.Time) (answer, error) {
	key, err := m.verify(ctx, token, audience, now)
	if err != nil {
		return answer{}, err
	}
	c, refused := token.verifiedClaims()
	if refused != nil {
		return answer{}, refused
	}
	id, err := m.identity(ctx, c, len(token.signature.UnsafePayloadWithoutVerification()))
	if err != nil {
		return answer{}, err
	}
	return answer{
		result: &Result{Identity: id, Expires: token.expiry()},
		until:  now().Add(verifiedFor),
		basis:  &signedBy{set: m.keys.keySet, key: key},
	}, nil
}

// maxEvaluated bounds the payload that expressions are run over.
const maxEvaluated = 32 << 10

// identity maps the claims of a payload of so many bytes, when it is the
// token's turn to have expressions run over them.
func (m *jwtAuthenticator) identity(ctx context.Context, c claims, size int) (*identity.Identity, error) {
	if m.mapping.usesCEL() {
		if size > maxEvaluated {
			return nil, errTooLarge
		}
		if m.evaluations.enter(ctx) != nil {
			return nil, errBusy
		}
		defer m.evaluations.leave()
		if evaluations.enter(ctx) != nil {
			return nil, errBusy
		}
		defer evaluations.leave()
	}
	id, refused := m.mapping.identity(ctx, c)
	switch {
	case refused == nil:
		return id, nil
	case ctx.Err() != nil:
		return nil, errBusy // which is no verdict on the token
	}
	return nil, refused
}

// verify has go-oidc check the token against our key set. An empty audience
// says that the caller has decided about the audience.
func (m *jwtAuthenticator) verify(ctx context.Context, token *jwt, audience string, now func() time.Time) (*publicKey, error) {
	check := &signatureCheck{set: m.keys, token: token}
	verifier := oidc.NewVerifier(m.issuer, check, &oidc.Config{
		ClientID:             audience,
		SkipClientIDCheck:    audience == "",
		SupportedSigningAlgs: algorithmNames,
		Now:                  now,
	})
	_, err := verifier.Verify(ctx, token.raw)
	switch {
	case check.err != nil:
		return nil, check.err // go-oidc does not keep the chain
	case check.key == nil:
		return nil, errSignature
	case token.expired(now()):
		return nil, errExpired
	case err != nil:
		return nil, errNotYetValid // all else was looked at before
	}
	return check.key, nil
}

var algorithmNames = func() (names []string) {
	for _, algorithm := range algorithms {
		names = append(names, string(algorithm))
	}
	return names
}()

// signatureCheck is the oidc.KeySet for one token.
type signatureCheck struct {
	set   keyShare
	token *jwt
	key   *publicKey
	err   error
}

var errOtherToken = errors.New("another token than the one that was read")

// VerifySignature verifies the token that was read before, and hands out its
// registered claims only (see registered.payload).
func (c *signatureCheck) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	if raw != c.token.raw {
		return nil, errOtherToken
	}
	key, err := c.set.verify(ctx, c.token)
	if err != nil {
		c.err = err
		return nil, err
	}
	payload, err := c.token.payload()
	if err != nil {
		return nil, err
	}
	c.key = key
	return payload, nil
}

// signedBy is the basis of a locally verified answer: the key that signed it
// is still published, and the key set is not overdue.
type signedBy struct {
	set *keySet
	key *publicKey
}

func (b *signedBy) stands(now time.Time) bool { return b.set.fresh(b.key, now) }

// Refresh begins to read the keys of the issuers whose keys are due, and
// waits for none of them. Called once in a while it makes IssuerFaults tell
// of an issuer nobody sent a token of.
func (a *JWTAuthenticators) Refresh() {
	for _, member := range a.members {
		member.keys.refresh()
	}
}

// IssuerFaults lists the issuers that gave no usable answer when last asked,
// each with what was wrong, for the notice IssuerUnavailable (AUTH-13). It is
// in the order of the configuration and holds nothing a provider wrote.
func (a *JWTAuthenticators) IssuerFaults() []string {
	var faults []string
	seen := make(map[*keySet]bool, len(a.members))
	for _, member := range a.members {
		if seen[member.keys.keySet] {
			continue
		}
		seen[member.keys.keySet] = true
		if fault := member.keys.lastFault(); fault != "" {
			faults = append(faults, member.issuer+": "+fault)
		}
	}
	return faults
}

// Close gives the key sets back and drops what is remembered. A request that is
// still with the authenticators is served with the keys that are known.
func (a *JWTAuthenticators) Close() {
	a.cache.drop(a.scope)
	for _, release := range a.release {
		release()
	}
}

// Interface guards.
var (
	_ validator   = (*JWTAuthenticators)(nil)
	_ oidc.KeySet = (*signatureCheck)(nil)
)
