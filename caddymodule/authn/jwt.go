package authn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/keys"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// verifiedFor is how long a locally verified token is remembered (AUTH-12).
const verifiedFor = 10 * time.Minute

// jwtAuthenticators accepts tokens that one of several issuers signed
// (JwtAuthenticators, AUTH-4).
type jwtAuthenticators struct {
	now     func() time.Time
	members []*jwtAuthenticator
}

// jwtAuthenticator is one entry of auth_config.jwt.
type jwtAuthenticator struct {
	issuer    string
	audiences []string
	keys      *keys.Handle
	mapping   *claims.Mapping
	now       func() time.Time
}

var errNoAudience = errors.New("the authenticator has no audience")

// newJWT makes the authenticators of a configuration. It does no I/O: keys are
// read when a token needs them, or by Refresh.
func (f *Factory) newJWT(configured []k8swatch.JWT) (*jwtAuthenticators, error) {
	a := &jwtAuthenticators{now: f.cache.now}
	turns := f.turns.ForCluster(f.owner.Namespace)
	for i := range configured {
		member, err := f.newMember(&configured[i], turns)
		if err != nil {
			a.Close()
			return nil, fmt.Errorf("making authenticator %d: %w", i, err)
		}
		a.members = append(a.members, member)
	}
	return a, nil
}

func (f *Factory) newMember(j *k8swatch.JWT, turns *claims.ClusterTurns) (*jwtAuthenticator, error) {
	issuer := &j.Authenticator.Issuer
	if len(issuer.Audiences) == 0 {
		return nil, errNoAudience
	}
	handle, err := f.keys.Acquire(f.owner, issuer.URL, issuer.DiscoveryURL, issuer.CertificateAuthority)
	if err != nil {
		return nil, err
	}
	return &jwtAuthenticator{
		issuer:    issuer.URL,
		audiences: issuer.Audiences,
		keys:      handle,
		mapping:   claims.NewMapping(j, turns),
		now:       f.cache.now,
	}, nil
}

// Authenticate implements Validator. All that can be seen without the signature
// is looked at first.
func (a *jwtAuthenticators) Authenticate(ctx context.Context, token string) (*Result, error) {
	if !looksSigned(token) {
		if kind, _ := classify(token); kind == opaque {
			return nil, atSight{errOpaque}
		}
		return nil, atSight{errMalformed}
	}
	read, refused := parseJWT(token)
	if refused != nil {
		return nil, atSight{refused}
	}
	member, audience, refused := a.choose(read)
	if refused != nil {
		return nil, atSight{refused}
	}
	return member.authenticate(ctx, read, audience)
}

// choose finds the authenticator for the iss and aud of a token, and the audience
// that matched. Nothing here is verified yet.
func (a *jwtAuthenticators) choose(token *jwt) (*jwtAuthenticator, string, *Unauthenticated) {
	if len(token.Audience) == 0 {
		return nil, "", errClaims
	}
	known, expected := false, []string(nil)
	for _, member := range a.members {
		if member.issuer != token.Issuer {
			continue
		}
		known, expected = true, append(expected, member.audiences...)
		for _, audience := range token.Audience {
			if !slices.Contains(member.audiences, audience) {
				continue
			}
			if token.Expired(a.now()) {
				return nil, "", errExpired
			}
			return member, audience, nil
		}
	}
	if !known {
		return nil, "", errUnknownIssuer
	}
	return nil, "", wrongAudience(expected, token.Audience)
}

// authenticate verifies a token and maps its claims.
func (m *jwtAuthenticator) authenticate(ctx context.Context, token *jwt, audience string) (*Result, error) {
	key, err := m.verify(ctx, token, audience)
	if err != nil {
		return nil, err
	}
	c, refused := token.verifiedClaims()
	if refused != nil {
		return nil, refused
	}
	id, err := m.mapping.Identity(ctx, c, token.payloadSize())
	if err != nil {
		return nil, verdict(m.issuer, err)
	}
	return &Result{
		Identity:   id,
		Expires:    token.Expiry(),
		until:      m.now().Add(verifiedFor),
		stillValid: m.signedBy(key),
	}, nil
}

// signedBy is the Result.stillValid of a token that was verified with a key: the
// key is still published, and the key set is not overdue.
func (m *jwtAuthenticator) signedBy(key *keys.Key) func(time.Time) bool {
	return func(now time.Time) bool { return m.keys.IsFresh(key, now) }
}

// verify has go-oidc check the token against our key set. An empty audience says
// that the caller has decided about the audience.
func (m *jwtAuthenticator) verify(ctx context.Context, token *jwt, audience string) (*keys.Key, error) {
	check := &signatureCheck{keys: m.keys, token: token}
	verifier := oidc.NewVerifier(m.issuer, check, &oidc.Config{
		ClientID:             audience,
		SkipClientIDCheck:    audience == "",
		SupportedSigningAlgs: algorithmNames,
		Now:                  m.now,
	})
	_, err := verifier.Verify(ctx, token.raw)
	switch {
	case check.err != nil:
		return nil, verdict(m.issuer, check.err) // go-oidc does not keep the chain
	case check.key == nil:
		return nil, errSignature
	case token.Expired(m.now()):
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
	keys  *keys.Handle
	token *jwt
	key   *keys.Key
	err   error
}

var errOtherToken = errors.New("another token than the one that was read")

// VerifySignature verifies the token that was read before, and hands out its
// registered claims only (see claims.Registered.Payload).
func (c *signatureCheck) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	if raw != c.token.raw {
		return nil, errOtherToken
	}
	key, err := c.keys.Verify(ctx, c.token.signature, len(raw))
	if err != nil {
		c.err = err
		return nil, err
	}
	payload, err := c.token.Payload()
	if err != nil {
		return nil, err
	}
	c.key = key
	return payload, nil
}

// Refresh implements Validator.
func (a *jwtAuthenticators) Refresh() {
	for _, member := range a.members {
		member.keys.Refresh()
	}
}

// Faults implements Validator.
func (a *jwtAuthenticators) Faults() []string {
	var faults []string
	for _, member := range a.members {
		if fault := member.keys.Fault(); fault != "" && !slices.Contains(faults, member.issuer+": "+string(fault)) {
			faults = append(faults, member.issuer+": "+string(fault))
		}
	}
	return faults
}

// AsksApiserver implements Validator.
func (a *jwtAuthenticators) AsksApiserver() bool { return false }

// Close implements Validator: it gives the key sets back.
func (a *jwtAuthenticators) Close() {
	for _, member := range a.members {
		member.keys.Close()
	}
}

// Interface guards.
var (
	_ Validator   = (*jwtAuthenticators)(nil)
	_ oidc.KeySet = (*signatureCheck)(nil)
)
