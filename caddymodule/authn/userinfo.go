package authn

import (
	"context"
	"errors"
	"mime"
	"net/http"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/keys"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/oauth"
)

const (
	userinfoEndpoint      = "userinfo endpoint"
	introspectionEndpoint = "introspection endpoint"

	noUserinfo idp.Fault = "its discovery document names no userinfo_endpoint that is an https URL"
	notObject  idp.Fault = "its answer is not a JSON object"
	noSubject  idp.Fault = "its answer names no subject"
	signedJSON idp.Fault = "its answer is a signed or encrypted JWT, and only plain JSON is supported"
)

// facts are the claims about a user, and how many bytes they were read from.
type facts struct {
	claims claims.Claims
	size   int
}

// askUserinfo reads the claims of the user a token was issued for (OpenID
// Connect Core, section 5.3). They must be about subject, empty when nothing
// is known of it. verified says that the provider is known to have issued the
// token.
func (p *oidcProvider) askUserinfo(ctx context.Context, at keys.Endpoints, token, subject string, verified bool) (facts, error) {
	var found facts
	err := p.userinfo.Ask(ctx, idp.Call{
		Token:    token,
		Verified: verified,
		Request: func(ctx context.Context) (*http.Request, error) {
			request, err := idp.NewGet(ctx, at.Userinfo)
			if err == nil {
				request.Header.Set("Authorization", "Bearer "+token)
			}
			return request, err
		},
		Read: func(r *idp.Response) error {
			c, err := readUserinfo(r, subject)
			found = facts{claims: c, size: len(r.Body)}
			return err
		},
	})
	return found, p.fault(userinfoEndpoint, err)
}

// readUserinfo reads what /userinfo answered. A 401 and a 403 are about the
// token (RFC 6750 section 3.1: expired, revoked, without the scope openid).
func readUserinfo(r *idp.Response, subject string) (claims.Claims, error) {
	switch {
	case r.Status == http.StatusOK:
	case r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden, oauth.RefusesToken(r.Status, r.Body):
		return nil, errNotAccepted
	default:
		return nil, r.Unexpected()
	}
	// Section 5.3.2 has a signed answer for clients that registered for one.
	if media, _, _ := mime.ParseMediaType(r.ContentType); media == "application/jwt" {
		return nil, signedJSON
	}
	c, err := readObject(r.Body)
	if err != nil {
		return nil, err
	}
	// Without this the claims of one user could be taken for another's
	// (section 5.3.2).
	switch about, ok := c.Text("sub"); {
	case !ok || about == "":
		return nil, noSubject // {"error":...} with a 200, say: not about the token
	case subject != "" && about != subject:
		return nil, errSubject
	}
	return c, nil
}

// readObject reads the JSON object that a provider answers with. What is none,
// or too large a one, is the provider's fault. One that could be read in two
// ways is about its user, who may have chosen some of it: the rest of the users
// go on (AUTH-10).
func readObject(body []byte) (claims.Claims, error) {
	c, err := claims.Parse(body)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, boundedjson.ErrNoObject):
		return nil, notObject
	case errors.Is(err, boundedjson.ErrTooManyMembers):
		return nil, idp.TooManyMembers
	}
	return nil, errClaims
}
