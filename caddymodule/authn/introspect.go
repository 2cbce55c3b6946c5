package authn

import (
	"context"
	"net/http"
	"net/url"
	"time"

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
func (p *OIDCProvider) introspects(at endpoints) bool {
	return at.introspection != "" && p.clientSecret != "" && p.validation != AudienceOff
}

// introspect asks what an opaque token is for (RFC 7662). expires is when it
// ends if the provider does not say.
func (p *OIDCProvider) introspect(ctx context.Context, at endpoints, token string, expires time.Time) (introspected, error) {
	var state introspected
	err := p.introspection.Ask(ctx, idp.Call{
		Token: token,
		Request: func(ctx context.Context) (*http.Request, error) {
			form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
			if at.secretInForm {
				form.Set("client_id", p.clientID)
				form.Set("client_secret", p.clientSecret)
			}
			request, err := idp.NewPost(ctx, at.introspection, form)
			if err == nil && !at.secretInForm {
				idp.SetClient(request, p.clientID, p.clientSecret)
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
func (p *OIDCProvider) readIntrospection(r *idp.Response, expires time.Time) (introspected, error) {
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
	switch issuer, ok := c.issuer(); {
	case !ok:
		return none, noAnswer
	case issuer != "" && issuer != p.verifier.issuer:
		return none, errUnknownIssuer
	}
	audience, ok := c.audience()
	if !ok {
		return none, noAnswer
	}
	var refused *Unauthenticated
	if state.wrongAudience, refused = p.judgeAudience(audience, c.party()); refused != nil {
		return none, refused
	}
	// sub is optional here. /userinfo answers for this very token, and must
	// agree where both say whose it is.
	if c["sub"] != nil && !c.isNull("sub") {
		if state.subject, ok = c.text("sub"); !ok || state.subject == "" {
			return none, noAnswer
		}
	}
	return state, nil
}

// judgeTimes holds exp and nbf, both optional here, to the rules of a JWT.
func (p *OIDCProvider) judgeTimes(c claims, state *introspected) error {
	now := p.now()
	if c["exp"] != nil && !c.isNull("exp") {
		seconds, ok := numericDate(c["exp"])
		if !ok {
			return noAnswer
		}
		if state.expires = time.Unix(seconds, 0); !now.Before(state.expires) {
			return errExpired
		}
	}
	if c["nbf"] != nil && !c.isNull("nbf") {
		seconds, ok := numericDate(c["nbf"])
		if !ok {
			return noAnswer
		}
		if now.Add(notBeforeLeeway).Before(time.Unix(seconds, 0)) {
			return errNotYetValid
		}
	}
	return nil
}

// notBeforeLeeway is go-oidc's.
const notBeforeLeeway = 5 * time.Minute

// party is the client a token was issued to: azp, or client_id where
// introspection has that name for it (RFC 7662 section 2.2).
func (c claims) party() string {
	for _, name := range []string{"azp", "client_id"} {
		if c[name] != nil {
			party, _ := c.text(name)
			return party
		}
	}
	return ""
}
