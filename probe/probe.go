package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/neterr"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// Name is the name and the group of the probe, under the prefixes.
	Name = "proxyauth-probe"
	// ExtraKey is the extra attribute that carries the random value.
	ExtraKey = "proxyauth.weebo.si.rs/probe"

	reviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	review     = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`

	// limit bounds one probe whatever its context says.
	limit = 10 * time.Second
	// maxMessage bounds a verdict's message, in characters.
	maxMessage = 256
)

// Check probes once. rt is the connection of the relay, base the apiserver with
// its path base, s the prefixes of the cluster. It takes 10 s at most, or what
// ctx allows. Redirects are not followed.
func Check(ctx context.Context, rt http.RoundTripper, base *url.URL, s identity.Settings) Verdict {
	asserted, refused := identity.Forward(probeIdentity(), s)
	if refused != nil {
		// Admission and compilation keep such prefixes out.
		return unknown("the probe was not sent: %s", refused.Message())
	}
	a, fault := ask(ctx, rt, base, asserted)
	defer a.done()
	switch {
	case fault != "":
		return unknown("%s", fault)
	case a.code == http.StatusUnauthorized:
		return Verdict{Trust: v1.TrustRejected, Message: "the apiserver answered 401: --requestheader-client-ca-file does not verify " +
			"the proxy's certificate, or --requestheader-allowed-names does not hold its CN"}
	case a.code == http.StatusForbidden:
		return forbidden(a.body, asserted)
	case a.code == http.StatusCreated:
		return judge(a.body, asserted)
	}
	return unknown("the apiserver answered %d to the probe", a.code)
}

// probeIdentity is nobody: its name and group are known, the rest is random,
// so that no cache in front of the apiserver can answer for it.
func probeIdentity() *identity.Identity {
	return &identity.Identity{
		Name:   Name,
		UID:    rand.Text(),
		Groups: []string{Name},
		Extra:  map[string][]string{ExtraKey: {rand.Text()}},
	}
}

// reply is what an apiserver said to a review. The body is read of a 201 and of
// a 403 only.
type reply struct {
	code    int
	body    []byte
	release func() // nil without a body
}

// done must be called when the body is no longer needed.
func (a reply) done() {
	if a.release != nil {
		a.release()
	}
}

// ask sends one SelfSubjectReview, with an identity to assert or without any. A
// fault says in words what kept it from an answer.
func ask(ctx context.Context, rt http.RoundTripper, base *url.URL, asserted *identity.Forwarded) (a reply, fault string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := reviewRequest(ctx, base, Name)
	if err != nil {
		return reply{}, "the probe was not sent: " + err.Error()
	}
	if asserted != nil {
		asserted.Assert(req.Header)
	}
	a, err = send(rt, req)
	switch {
	case errors.Is(err, boundedjson.ErrTooLarge):
		return reply{}, fmt.Sprintf("the apiserver answered %d to the probe with more than 1 MiB", a.code)
	case err != nil:
		return reply{}, unanswered(ctx, err)
	}
	return a, ""
}

func reviewRequest(ctx context.Context, base *url.URL, agent string) (*http.Request, error) {
	req, err := request(ctx, base, http.MethodPost, reviewPath, strings.NewReader(review))
	if err != nil {
		return nil, err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["User-Agent"] = []string{agent}
	return req, nil
}

// send sends a request and reads the answer within bounds.
func send(rt http.RoundTripper, req *http.Request) (a reply, err error) {
	res, err := rt.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	a.code = res.StatusCode
	if a.code != http.StatusCreated && a.code != http.StatusForbidden {
		return a, nil
	}
	a.body, a.release, err = boundedjson.Shared.Read(req.Context(), res.Body)
	return a, err
}

// request is a request of the proxy's own, without a credential.
func request(ctx context.Context, base *url.URL, method, path string, body io.Reader) (*http.Request, error) {
	// Not JoinPath, which would clean a path base that the relay leaves as it is.
	target := base.Scheme + "://" + base.Host + strings.TrimSuffix(base.EscapedPath(), "/") + path
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header = http.Header{
		"Accept":     {"application/json"},
		"User-Agent": {Name},
	}
	return req, nil
}

// unanswered says what kept the probe from an answer.
func unanswered(ctx context.Context, err error) string {
	if ctx.Err() != nil || neterr.IsTimeout(err) {
		return "the apiserver did not answer the probe in time"
	}
	return "the probe got no answer: " + kindOf(err)
}

// kindOf says what kind of trouble a connection had. The error itself may hold
// addresses of the proxy's network and bytes that the apiserver sent, and a
// status is read by others than the proxy's admin.
func kindOf(err error) string {
	switch neterr.KindOf(err) {
	case neterr.Certificate:
		return "the certificate of the apiserver cannot be verified"
	case neterr.Resolve:
		return "the address of the apiserver cannot be resolved"
	case neterr.Timeout:
		return "the connection took too long"
	case neterr.Refused:
		return "the connection was refused"
	case neterr.RemoteAlert:
		return "the apiserver ended the TLS handshake"
	case neterr.Dial:
		return "the apiserver cannot be connected to"
	}
	return "the connection failed"
}
