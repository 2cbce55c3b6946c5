package authn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/keys"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// What an OidcProvider does about a token for another audience (AUTH-7), or one
// whose audience cannot be told.
const (
	AudienceEnforce = "enforce" // 401
	AudienceWarn    = "warn"    // accepted, with Result.WrongAudience
	AudienceOff     = "off"     // accepted
)

// oidcProvider accepts the tokens of one OpenID provider (OidcProvider, AUTH-6).
// A JWT is verified with the provider's keys before it is sent anywhere; the
// claims are those that /userinfo gives for the token.
type oidcProvider struct {
	// config says what is accepted, validation what is done about another
	// audience.
	config     *k8swatch.OIDCProvider
	validation string
	// ttl is how long what the provider answered about a token is remembered. 0
	// asks for each request.
	ttl time.Duration
	now func() time.Time

	// verifier checks signatures and maps claims.
	verifier *jwtAuthenticator

	client                  *idp.Client
	userinfo, introspection *idp.Asker
}

var errValidation = errors.New("audience_validation is neither enforce nor warn nor off")

// newOIDC makes the validator of a configuration. It does no I/O: what the
// provider publishes is read when a token needs it, or by Refresh.
func (f *Factory) newOIDC(config *k8swatch.OIDCProvider) (*oidcProvider, error) {
	switch f.options.AudienceValidation {
	case AudienceEnforce, AudienceWarn, AudienceOff:
	default:
		return nil, errValidation
	}
	if config.Audience == "" {
		return nil, errNoAudience
	}
	client, err := idp.NewClient(config.CertificateAuthority, f.options.Answers, f.options.DeniedTargets)
	if err != nil {
		return nil, fmt.Errorf("making a client for the provider: %w", err)
	}
	handle, err := f.keys.Acquire(f.owner, config.IssuerURL, "", config.CertificateAuthority)
	if err != nil {
		return nil, fmt.Errorf("making a key set for the provider: %w", err)
	}
	changed := func() { f.issuerFault(config.IssuerURL) }
	now := f.cache.now
	return &oidcProvider{
		config:     config,
		validation: f.options.AudienceValidation,
		ttl:        f.options.TokenCacheTTL,
		now:        now,
		verifier: &jwtAuthenticator{
			issuer:  config.IssuerURL,
			keys:    handle,
			mapping: claims.NewMapping(&config.Claims, f.turns.ForCluster(f.owner.Namespace)),
			now:     now,
		},
		client:        client,
		userinfo:      idp.NewAsker(client, now, changed),
		introspection: idp.NewAsker(client, now, changed),
	}, nil
}

// Authenticate implements Validator.
func (p *oidcProvider) Authenticate(ctx context.Context, token string) (*Result, error) {
	read, refused := p.read(token)
	switch {
	case refused != nil:
		return nil, atSight{refused}
	case read.jwt != nil:
		return p.authenticateSigned(ctx, read)
	}
	return p.authenticateOpaque(ctx, token)
}

// presented is a token that the provider may have issued.
type presented struct {
	token string
	// jwt is nil for a token that only the provider can read.
	jwt           *jwt
	wrongAudience bool
}

// read looks at all that can be seen without asking a server. What it refuses is
// never sent anywhere.
func (p *oidcProvider) read(token string) (presented, *Unauthenticated) {
	kind, issuer := classify(token)
	switch {
	case kind == malformed:
		return presented{}, errMalformed
	case kind == signedAnonymous, issuer != "" && issuer != p.config.IssuerURL:
		return presented{}, errUnknownIssuer
	case kind == signed:
		return p.readJWT(token)
	case p.config.ClaimsFromToken:
		return presented{}, errOpaque
	case p.config.ClientSecret == "" && p.validation == AudienceEnforce:
		return presented{}, errNotIntrospected
	}
	return presented{token: token}, nil
}

func (p *oidcProvider) readJWT(token string) (presented, *Unauthenticated) {
	read, refused := parseJWT(token)
	if refused != nil {
		return presented{}, refused
	}
	if read.Issuer != p.config.IssuerURL {
		return presented{}, errUnknownIssuer
	}
	wrong, refused := p.judgeAudience(read.Audience, read.Party)
	if refused != nil {
		return presented{}, refused
	}
	if read.Expired(p.now()) {
		return presented{}, errExpired
	}
	return presented{token: token, jwt: read, wrongAudience: wrong}, nil
}

// judgeAudience decides about a token for these audiences (AUTH-7).
func (p *oidcProvider) judgeAudience(audience []string, party string) (wrong bool, refused *Unauthenticated) {
	if slices.Contains(audience, p.config.Audience) || p.config.AcceptAuthorizedParty && party == p.config.Audience {
		return false, nil
	}
	if p.validation == AudienceEnforce {
		return false, wrongAudience([]string{p.config.Audience}, audience)
	}
	return p.validation == AudienceWarn, nil
}

// authenticateSigned verifies a JWT, and only then shows it to /userinfo.
func (p *oidcProvider) authenticateSigned(ctx context.Context, token presented) (*Result, error) {
	key, err := p.verifier.verify(ctx, token.jwt, "")
	if err != nil {
		return nil, err
	}
	c, refused := token.jwt.verifiedClaims()
	if refused != nil {
		return nil, refused
	}
	found := facts{claims: c, size: token.jwt.payloadSize()}
	until := p.now().Add(verifiedFor)
	if !p.config.ClaimsFromToken {
		// An access token need not have sub; /userinfo answers for this very token.
		subject, ok := c.Text("sub")
		if c.IsSet("sub") && (!ok || subject == "") {
			return nil, errClaims
		}
		until = p.now().Add(p.ttl)
		at, err := p.endpoints(ctx, len(token.token))
		if err != nil {
			return nil, err
		}
		if found, err = p.askUserinfo(ctx, at, token.token, subject, true); err != nil {
			return nil, err
		}
	}
	id, err := p.verifier.mapping.Identity(ctx, found.claims, found.size)
	if err != nil {
		return nil, verdict(p.config.IssuerURL, err)
	}
	return &Result{
		Identity: id, Expires: token.jwt.Expiry(), WrongAudience: token.wrongAudience,
		until: until, stillValid: p.verifier.signedBy(key),
	}, nil
}

// authenticateOpaque has the provider say what a token is that only it can read.
func (p *oidcProvider) authenticateOpaque(ctx context.Context, token string) (*Result, error) {
	at, err := p.endpoints(ctx, len(token))
	if err != nil {
		return nil, err
	}
	until := p.now().Add(p.ttl)
	state := introspected{expires: until, wrongAudience: p.validation == AudienceWarn}
	introspects := p.introspects(at)
	switch {
	case introspects:
		if state, err = p.introspect(ctx, at, token, until); err != nil {
			return nil, err
		}
	case p.validation == AudienceEnforce:
		return nil, errNotIntrospected
	}
	found, err := p.askUserinfo(ctx, at, token, state.subject, introspects)
	if err != nil {
		return nil, err
	}
	id, err := p.verifier.mapping.Identity(ctx, found.claims, found.size)
	if err != nil {
		return nil, verdict(p.config.IssuerURL, err)
	}
	return &Result{Identity: id, Expires: state.expires, WrongAudience: state.wrongAudience, until: until}, nil
}

// endpoints are where the provider is asked about a token of so many bytes.
func (p *oidcProvider) endpoints(ctx context.Context, bytes int) (keys.Endpoints, error) {
	at, err := p.verifier.keys.Endpoints(ctx, bytes)
	if err == nil && at.Userinfo == "" {
		err = noUserinfo
	}
	return at, verdict(p.config.IssuerURL, err)
}

// fault makes an *Unavailable of a fault of an endpoint; a refusal stays what it
// is.
func (p *oidcProvider) fault(endpoint string, err error) error {
	var f idp.Fault
	if errors.As(err, &f) {
		return unavailable(p.config.IssuerURL+": "+endpoint, f)
	}
	return err
}

// Refresh implements Validator.
func (p *oidcProvider) Refresh() { p.verifier.keys.Refresh() }

// Faults implements Validator: what went wrong when the provider was last asked
// for its keys, for the claims of a token, or whether one is active.
func (p *oidcProvider) Faults() []string {
	var faults []string
	add := func(what string) { faults = append(faults, p.config.IssuerURL+": "+what) }
	at, known := p.verifier.keys.KnownEndpoints()
	if fault := p.verifier.keys.Fault(); fault != "" {
		add(fault.Error())
	} else if known && at.Userinfo == "" && !p.config.ClaimsFromToken {
		add(noUserinfo.Error())
	}
	if fault := p.userinfo.Fault(); fault != "" {
		add(userinfoEndpoint + ": " + fault.Error())
	}
	if fault := p.introspection.Fault(); fault != "" {
		add(introspectionEndpoint + ": " + fault.Error())
	}
	return faults
}

// AsksApiserver implements Validator.
func (p *oidcProvider) AsksApiserver() bool { return false }

// Close implements Validator.
func (p *oidcProvider) Close() {
	p.verifier.keys.Close()
	p.client.CloseIdleConnections()
}

// Interface guard.
var _ Validator = (*oidcProvider)(nil)
