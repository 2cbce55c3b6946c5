package authn

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/keys"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/oauth"
)

const (
	noActive idp.Fault = "its answer does not say whether the token is active"
	noAnswer idp.Fault = "its answer has a member of the wrong type"
)

// introspected is what is known of an opaque token.
type introspected struct {
	// subject is empty when it was not introspected.
	subject       string
	expires       time.Time
	wrongAudience bool
}

// introspects reports whether the provider is asked what an opaque token is
// for: it says how, we have a secret for it, and the audience is of interest.
func (p *oidcProvider) introspects(at keys.Endpoints) bool {
	return at.Introspection != "" && p.config.ClientSecret != "" && p.validation != AudienceOff
}

// introspect asks what an opaque token is for (RFC 7662). expires is when it
// ends if the provider does not say.
func (p *oidcProvider) introspect(ctx context.Context, at keys.Endpoints, token string, expires time.Time) (introspected, error) {
	var state introspected
	err := p.introspection.Ask(ctx, idp.Call{
		Token: token,
		Request: func(ctx context.Context) (*http.Request, error) {
			form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
			if at.SecretInForm {
				form.Set("client_id", p.config.ClientID)
				form.Set("client_secret", p.config.ClientSecret)
			}
			request, err := idp.NewPost(ctx, at.Introspection, form)
			if err == nil && !at.SecretInForm {
				idp.SetClient(request, p.config.ClientID, p.config.ClientSecret)
			}
			return request, err
		},
		Read: func(r *idp.Response) (err error) {
			state, err = p.readIntrospection(r, expires)
			return err
		},
	})
	return state, p.fault(introspectionEndpoint, err)
}

// readIntrospection reads what the endpoint answered. A token it does not know
// is a 200, so every other status is about us (RFC 7662 section 2.3), but for
// the one that says that the text is no token.
func (p *oidcProvider) readIntrospection(r *idp.Response, expires time.Time) (introspected, error) {
	none := introspected{}
	switch {
	case r.Status == http.StatusOK:
	case oauth.RefusesToken(r.Status, r.Body):
		return none, errInactive
	default:
		return none, r.Unexpected()
	}
	c, err := readObject(r.Body)
	if err != nil {
		return none, err
	}
	switch string(c["active"]) {
	case "true":
	case "false":
		return none, errInactive
	default: // a text is none (RFC 7662 section 2.2)
		return none, noActive
	}
	state := introspected{expires: expires}
	if err := p.judgeTimes(c, &state); err != nil {
		return none, err
	}
	switch issuer, ok := c.Issuer(); {
	case !ok:
		return none, noAnswer
	case issuer != "" && issuer != p.config.IssuerURL:
		return none, errUnknownIssuer
	}
	audience, ok := c.Audience()
	if !ok {
		return none, noAnswer
	}
	var refused *Unauthenticated
	if state.wrongAudience, refused = p.judgeAudience(audience, party(c)); refused != nil {
		return none, refused
	}
	// sub is optional here. /userinfo answers for this very token, and must
	// agree where both name the subject.
	if c.IsSet("sub") {
		if state.subject, ok = c.Text("sub"); !ok || state.subject == "" {
			return none, noAnswer
		}
	}
	return state, nil
}

// judgeTimes holds exp and nbf, both optional here, to the rules of a JWT.
func (p *oidcProvider) judgeTimes(c claims.Claims, state *introspected) error {
	now := p.now()
	if c.IsSet("exp") {
		expires, ok := c.DateOrText("exp")
		if !ok {
			return noAnswer
		}
		if state.expires = expires; !now.Before(expires) {
			return errExpired
		}
	}
	if c.IsSet("nbf") {
		notBefore, ok := c.DateOrText("nbf")
		if !ok {
			return noAnswer
		}
		if now.Add(notBeforeLeeway).Before(notBefore) {
			return errNotYetValid
		}
	}
	return nil
}

// notBeforeLeeway is go-oidc's.
const notBeforeLeeway = 5 * time.Minute

// party is the client a token was issued to: azp, or client_id where
// introspection has that name for it (RFC 7662 section 2.2).
func party(c claims.Claims) string {
	for _, name := range []string{"azp", "client_id"} {
		if c[name] != nil {
			party, _ := c.Text(name)
			return party
		}
	}
	return ""
}
