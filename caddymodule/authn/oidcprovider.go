package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// What an OidcProvider does about a token for another audience (AUTH-7), or
// one whose audience nobody can tell.
const (
	AudienceEnforce = "enforce" // 401
	AudienceWarn    = "warn"    // accepted, with Result.WrongAudience
	AudienceOff     = "off"     // accepted
)

// OIDCConfig says what an OidcProvider accepts.
type OIDCConfig struct {
	// UID and Hash are as in Config.
	UID  types.UID
	Hash string
	// IssuerURL is the iss of its tokens, and where discovery begins.
	IssuerURL string
	// ClientID and ClientSecret are what introspection is asked with.
	// Without a secret nothing is introspected.
	ClientID, ClientSecret string
	// Audience is what aud must hold.
	Audience string
	// CertificateAuthority is PEM, empty for the system roots.
	CertificateAuthority string
	// AcceptAuthorizedParty has azp count as an audience, and the client_id of
	// an introspection answer without azp.
	AcceptAuthorizedParty bool
	// ClaimsFromToken takes the claims from the verified JWT (claims_source:
	// Token). Userinfo is not asked then, and an opaque token is refused.
	ClaimsFromToken bool
	// AudienceValidation is one of the Audience constants.
	AudienceValidation string
	// TTL is how long what the provider answered about a token is remembered
	// (token_cache_ttl). 0 asks for each request.
	TTL time.Duration
	// Claims maps the claims. Of its issuer nothing is read.
	Claims JWT
}

// Format keeps the secret out of what is printed.
func (c OIDCConfig) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "provider %q of client %q", c.IssuerURL, c.ClientID)
}

// OIDCProvider accepts the tokens of one OpenID provider (AUTH-6). A JWT is
// verified with the provider's keys before anybody is asked about it; the
// claims are those that /userinfo gives for the token. It is safe for
// concurrent use.
type OIDCProvider struct {
	// verifier checks signatures and maps claims.
	verifier *jwtAuthenticator
	release  func()
	scope    scope
	cache    *Cache
	now      func() time.Time

	clientID, clientSecret string
	audience, validation   string
	acceptParty, fromToken bool
	ttl                    time.Duration

	client                  *http.Client
	userinfo, introspection *idp.Asker
}

var errValidation = errors.New("audience_validation is neither enforce nor warn nor off")

// NewOIDC makes an authenticator of a configuration. It does no I/O: what the
// provider publishes is read when a token needs it, or by Refresh. Close gives
// back what it holds.
func NewOIDC(cfg OIDCConfig, keys *KeySets, cache *Cache) (*OIDCProvider, error) {
	switch cfg.AudienceValidation {
	case AudienceEnforce, AudienceWarn, AudienceOff:
	default:
		return nil, errValidation
	}
	if cfg.Audience == "" {
		return nil, errNoAudience
	}
	client, err := idp.NewClient(cfg.CertificateAuthority)
	if err != nil {
		return nil, fmt.Errorf("making a client for the provider: %w", err)
	}
	set, release, err := keys.acquire(cfg.IssuerURL, "", cfg.CertificateAuthority)
	if err != nil {
		return nil, fmt.Errorf("making a key set for the provider: %w", err)
	}
	changed := func() {
		if keys.OnFaultChange != nil {
			keys.OnFaultChange(cfg.IssuerURL)
		}
	}
	return &OIDCProvider{
		verifier: &jwtAuthenticator{
			issuer:      cfg.IssuerURL,
			keys:        newKeyShare(set),
			mapping:     newMapping(&cfg.Claims.Authenticator, cfg.Claims.Mapper),
			evaluations: newLanes(),
		},
		release:       release,
		scope:         cache.newScope(cfg.UID, cfg.Hash),
		cache:         cache,
		now:           keys.now,
		clientID:      cfg.ClientID,
		clientSecret:  cfg.ClientSecret,
		audience:      cfg.Audience,
		validation:    cfg.AudienceValidation,
		acceptParty:   cfg.AcceptAuthorizedParty,
		fromToken:     cfg.ClaimsFromToken,
		ttl:           cfg.TTL,
		client:        client,
		userinfo:      idp.NewAsker(client, keys.now, changed),
		introspection: idp.NewAsker(client, keys.now, changed),
	}, nil
}

// Authenticate validates a token, or remembers what it was found to be.
func (p *OIDCProvider) Authenticate(ctx context.Context, token string) (*Result, error) {
	if len(token) > maxToken {
		return nil, errMalformed
	}
	key := cacheKey{scope: p.scope, token: digest(token)}
	if result, err, ok := p.cache.lookup(&key); ok {
		return result, err
	}
	claim, refused := p.read(token)
	if refused != nil {
		return nil, refused
	}
	return p.cache.load(ctx, key, func(ctx context.Context) (answer, error) { return p.ask(ctx, claim) })
}

// judge implements validator.
func (p *OIDCProvider) judge(ctx context.Context, token string) (answer, error) {
	claim, refused := p.read(token)
	if refused != nil {
		return answer{}, refused
	}
	return p.ask(ctx, claim)
}

// issuers implements validator.
func (p *OIDCProvider) issuers() []string { return []string{p.verifier.issuer} }

// remembers implements inner.
func (p *OIDCProvider) remembers() scope { return p.scope }

// presented is a token that the provider may have issued.
type presented struct {
	token string
	// jwt is nil for a token that only the provider can read.
	jwt           *jwt
	wrongAudience bool
}

// read looks at everything that can be seen without asking anybody. What it
// refuses is not remembered and never sent anywhere.
func (p *OIDCProvider) read(token string) (presented, *Unauthenticated) {
	kind, issuer := classify(token)
	switch {
	case kind == malformed:
		return presented{}, errMalformed
	case kind == signedAnonymous, issuer != "" && issuer != p.verifier.issuer:
		return presented{}, errUnknownIssuer
	case kind == signed:
		return p.readJWT(token)
	case p.fromToken:
		return presented{}, errOpaque
	case p.clientSecret == "" && p.validation == AudienceEnforce:
		return presented{}, errNotIntrospected
	}
	return presented{token: token}, nil
}

func (p *OIDCProvider) readJWT(token string) (presented, *Unauthenticated) {
	read, refused := parseJWT(token)
	if refused != nil {
		return presented{}, refused
	}
	if read.issuer != p.verifier.issuer {
		return presented{}, errUnknownIssuer
	}
	wrong, refused := p.judgeAudience(read.audience, read.party)
	if refused != nil {
		return presented{}, refused
	}
	if read.expired(p.now()) {
		return presented{}, errExpired
	}
	return presented{token: token, jwt: read, wrongAudience: wrong}, nil
}

// judgeAudience decides about a token for these audiences (AUTH-7).
func (p *OIDCProvider) judgeAudience(audience []string, party string) (wrong bool, refused *Unauthenticated) {
	if slices.Contains(audience, p.audience) || p.acceptParty && party == p.audience {
		return false, nil
	}
	if p.validation == AudienceEnforce {
		return false, errAudience
	}
	return p.validation == AudienceWarn, nil
}

// ask finds out about a token with the provider's help.
func (p *OIDCProvider) ask(ctx context.Context, token presented) (answer, error) {
	if token.jwt != nil {
		return p.askSigned(ctx, token)
	}
	return p.askOpaque(ctx, token)
}

// askSigned verifies a JWT, and only then shows it to /userinfo.
func (p *OIDCProvider) askSigned(ctx context.Context, token presented) (answer, error) {
	key, err := p.verifier.verify(ctx, token.jwt, "", p.now)
	if err != nil {
		return answer{}, err
	}
	c, refused := token.jwt.verifiedClaims()
	if refused != nil {
		return answer{}, refused
	}
	found := facts{claims: c, size: len(token.jwt.signature.UnsafePayloadWithoutVerification())}
	until := p.now().Add(verifiedFor)
	if !p.fromToken {
		subject, ok := c.text("sub")
		if !ok || subject == "" {
			return answer{}, errClaims
		}
		until = p.now().Add(p.ttl)
		at, err := p.endpoints(ctx, len(token.token))
		if err != nil {
			return answer{}, err
		}
		if found, err = p.askUserinfo(ctx, at, token.token, subject, true); err != nil {
			return answer{}, err
		}
	}
	id, err := p.verifier.identity(ctx, found.claims, found.size)
	if err != nil {
		return answer{}, err
	}
	return answer{
		result: &Result{Identity: id, Expires: token.jwt.expiry(), WrongAudience: token.wrongAudience},
		until:  until,
		basis:  &signedBy{set: p.verifier.keys.keySet, key: key},
	}, nil
}

// askOpaque has the provider say what a token is that only it can read.
func (p *OIDCProvider) askOpaque(ctx context.Context, token presented) (answer, error) {
	at, err := p.endpoints(ctx, len(token.token))
	if err != nil {
		return answer{}, err
	}
	until := p.now().Add(p.ttl)
	state := introspected{expires: until, wrongAudience: p.validation == AudienceWarn}
	introspects := p.introspects(at)
	switch {
	case introspects:
		if state, err = p.introspect(ctx, at, token.token, until); err != nil {
			return answer{}, err
		}
	case p.validation == AudienceEnforce:
		return answer{}, errNotIntrospected
	}
	found, err := p.askUserinfo(ctx, at, token.token, state.subject, introspects)
	if err != nil {
		return answer{}, err
	}
	id, err := p.verifier.identity(ctx, found.claims, found.size)
	if err != nil {
		return answer{}, err
	}
	return answer{
		result: &Result{Identity: id, Expires: state.expires, WrongAudience: state.wrongAudience},
		until:  until,
	}, nil
}

// endpoints are where the provider is asked about a token of so many bytes.
func (p *OIDCProvider) endpoints(ctx context.Context, bytes int) (endpoints, error) {
	known, err := p.verifier.keys.current(ctx, bytes)
	switch {
	case err != nil:
		return endpoints{}, err
	case known.endpoints.userinfo == "":
		return endpoints{}, &Unavailable{Fault: p.verifier.issuer + ": " + noUserinfo.Error()}
	}
	return known.endpoints, nil
}

// fault makes an *Unavailable of a fault of an endpoint; a refusal stays what
// it is.
func (p *OIDCProvider) fault(endpoint string, err error) error {
	var f idp.Fault
	if errors.As(err, &f) {
		return unavailable(p.verifier.issuer+": "+endpoint, f)
	}
	return err
}

// Refresh begins to read what the provider publishes when that is due, and
// does not wait for it.
func (p *OIDCProvider) Refresh() { p.verifier.keys.refresh() }

// IssuerFaults lists what went wrong when the provider was last asked for its
// keys, for the claims of a token, or whether one is active (AUTH-13). It
// holds nothing the provider wrote.
func (p *OIDCProvider) IssuerFaults() []string {
	var faults []string
	add := func(what string) { faults = append(faults, p.verifier.issuer+": "+what) }
	known := p.verifier.keys.known.Load()
	if fault := p.verifier.keys.lastFault(); fault != "" {
		add(fault)
	} else if known != nil && known.endpoints.userinfo == "" && !p.fromToken {
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

// Close gives back what the authenticator holds and drops what is remembered.
// A request that is still with it is served with the keys that are known.
func (p *OIDCProvider) Close() {
	p.cache.drop(p.scope)
	p.release()
	p.client.CloseIdleConnections()
}

// Interface guard.
var _ validator = (*OIDCProvider)(nil)
