package exchange

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

const (
	grantType  = "urn:ietf:params:oauth:grant-type:token-exchange"
	typePrefix = "urn:ietf:params:oauth:token-type:"
)

// Token is what a subject token was exchanged for.
type Token struct {
	// Value is a b64token (RFC 6750 section 2.1) of 64 KiB at most. Nothing
	// is known of its audience.
	Value string
	// Life is expires_in, 0 if the provider did not say.
	Life time.Duration
}

// Refused says that the provider refused to exchange a token, with an OAuth
// error (RFC 6749 section 5.2).
type Refused struct {
	// Code is the error if it is one that is registered for this grant, else
	// "other": the provider's own words go nowhere.
	Code string
}

func (r *Refused) Error() string { return "the token exchange was refused" }

// Misconfigured reports whether the error is about the client and what it asks
// for rather than about the subject token: the same would be answered to every
// bearer.
func (r *Refused) Misconfigured() bool {
	switch r.Code {
	case "invalid_client", "unauthorized_client", "unsupported_grant_type", "unsupported_token_type",
		"invalid_scope", "invalid_target", "invalid_resource":
		return true
	}
	return false
}

// Client exchanges tokens at one endpoint. It is safe for concurrent use.
type Client struct {
	config *k8swatch.TokenExchange
	http   *idp.Client
	asker  *idp.Asker
	// form are the parameters but for subject_token and client_secret.
	form url.Values
	// name is what the endpoint is called in notices.
	name string
	// worked is the method that brought the last token, none before the first.
	worked atomic.Int32
}

var (
	errTokenURL = errors.New("token_url is not an https URL of a host, without user information and fragment")
	errClientID = errors.New("client_id is missing")
)

// New makes a client for a compiled token_exchange (AUTH-15), which must not be
// changed afterwards. answers limits what is read of the answers, and no connection
// leads to a denied target. now is the clock. onFaultChange, if not nil, is told
// that Fault may have changed, and must not block. New asks nothing yet, and its
// errors hold no secret.
func New(c *k8swatch.TokenExchange, answers *boundedjson.Reader, denied *egress.Policy, now func() time.Time, onFaultChange func()) (*Client, error) {
	if !idp.Address(c.TokenURL) {
		return nil, errTokenURL // net/http would send user information as another client
	}
	if c.ClientID == "" {
		return nil, errClientID
	}
	client, err := idp.NewClient(c.CertificateAuthority, answers, denied)
	if err != nil {
		return nil, err
	}
	form := url.Values{}
	for name, value := range map[string]string{
		"grant_type":           grantType,
		"subject_token_type":   c.SubjectTokenType,
		"requested_token_type": c.RequestedTokenType,
		"client_id":            c.ClientID,
		"audience":             c.Audience,
		"resource":             c.Resource,
		"scope":                strings.Join(c.Scopes, " "),
	} {
		if value != "" {
			form.Set(name, value)
		}
	}
	return &Client{
		config: c,
		http:   client,
		asker:  idp.NewAsker(client, now, onFaultChange),
		form:   form,
		name:   withoutQuery(c.TokenURL),
	}, nil
}

func withoutQuery(address string) string {
	address, _, _ = strings.Cut(address, "?")
	return address
}

// Exchange exchanges a subject token, and returns the one of the answer that
// is to be used. The error is a *Refused, or an idp.Fault when the provider
// gave no usable answer or is not asked, for the reasons of idp.Asker.
func (c *Client) Exchange(ctx context.Context, subject string) (*Token, error) {
	if c.config.ClientSecret == "" {
		return c.ask(ctx, subject, none)
	}
	m, other := basic, post
	if method(c.worked.Load()) == post {
		m, other = post, basic
	}
	token, err := c.ask(ctx, subject, m)
	if c.isAboutMethod(err) {
		m = other
		token, err = c.ask(ctx, subject, m)
	}
	if err == nil {
		c.worked.Store(int32(m))
	}
	return token, err
}

// isAboutMethod reports whether an error may be a refusal of how the client
// showed who it is.
func (c *Client) isAboutMethod(err error) bool {
	var refused *Refused
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case "invalid_client":
		return true
	case "invalid_request", "unauthorized_client":
		return method(c.worked.Load()) == none
	}
	return false
}

// Fault is what went wrong when the endpoint was last asked, empty for nothing
// or when that is long ago.
func (c *Client) Fault() idp.Fault { return c.asker.Fault() }

// Name is the address of the endpoint, fit for notices and logs: without its
// query, which may hold a key.
func (c *Client) Name() string { return c.name }

// Format keeps the secret out of what is printed.
func (c *Client) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "token exchange at %s", c.name) }

// Close closes the connections that nothing is asked on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// method is how a client shows who it is (RFC 6749 section 2.3.1).
type method int32

const (
	none method = iota
	basic
	post
)

// ask sends one request and reads its answer.
func (c *Client) ask(ctx context.Context, subject string, m method) (token *Token, err error) {
	err = c.asker.Ask(ctx, idp.Call{
		Token:   subject,
		Request: func(ctx context.Context) (*http.Request, error) { return c.request(ctx, subject, m) },
		Read: func(r *idp.Response) (err error) {
			switch {
			case r.Status == http.StatusOK:
				token, err = read(r.Body, c.config)
				return err
			case 400 <= r.Status && r.Status < 500:
				return oauthError(r)
			}
			return r.Unexpected()
		},
	})
	return token, err
}

func (c *Client) request(ctx context.Context, subject string, m method) (*http.Request, error) {
	form := maps.Clone(c.form)
	form.Set("subject_token", subject)
	if m == post {
		form.Set("client_secret", c.config.ClientSecret)
	}
	request, err := idp.NewPost(ctx, c.config.TokenURL, form)
	if err == nil && m == basic {
		idp.SetClient(request, c.config.ClientID, c.config.ClientSecret)
	}
	return request, err
}
