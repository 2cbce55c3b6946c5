package probe

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
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
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 1 << 20
	// maxMessage bounds a verdict's message, in characters.
	maxMessage = 256
)

// Verdict is what one probe found out (TRUST-1).
type Verdict struct {
	Trust v1.Trust
	// Message says why the verdict is not Trusted: one line, printable, at
	// most 256 characters. It may quote what the apiserver sent, and nothing of
	// a credential.
	Message string
	// NamesAssertedUser marks the Unknown of an apiserver that forbids the
	// review itself, in words that name the asserted user: it did believe the
	// proxy (TRUST-3).
	NamesAssertedUser bool
}

func unknown(format string, args ...any) Verdict {
	return Verdict{Trust: v1.TrustUnknown, Message: bounded(fmt.Sprintf(format, args...))}
}

// Check probes once. rt is the connection of the relay, base the apiserver with
// its path base, s the prefixes of the cluster. It takes 10 s at most, or what
// ctx allows. Redirects are not followed.
func Check(ctx context.Context, rt http.RoundTripper, base *url.URL, s identity.Settings) Verdict {
	asserted, refused := identity.Forward(probeIdentity(), s)
	if refused != nil {
		// Admission and compilation keep such prefixes out.
		return unknown("the probe was not sent: %s", refused.Message())
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := request(ctx, base, asserted)
	if err != nil {
		return unknown("the probe was not sent: %v", err)
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return unanswered(ctx, err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return Verdict{Trust: v1.TrustRejected, Message: "the apiserver answered 401: --requestheader-client-ca-file does not verify " +
			"the proxy's certificate, or --requestheader-allowed-names does not hold its CN"}
	case http.StatusCreated, http.StatusForbidden:
	default:
		return unknown("the apiserver answered %d to the probe", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return unanswered(ctx, err)
	case len(body) > maxAnswer:
		return unknown("the apiserver answered %d to the probe with more than 1 MiB", res.StatusCode)
	case res.StatusCode == http.StatusForbidden:
		return forbidden(body, asserted)
	}
	return judge(body, asserted)
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

func request(ctx context.Context, base *url.URL, asserted *identity.Forwarded) (*http.Request, error) {
	// Not JoinPath, which would clean a path base that the relay leaves as it is.
	target := base.Scheme + "://" + base.Host + strings.TrimSuffix(base.EscapedPath(), "/") + reviewPath
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(review))
	if err != nil {
		return nil, fmt.Errorf("making the review: %w", err)
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json"},
		"User-Agent":   {Name},
	}
	asserted.Assert(req.Header)
	return req, nil
}

// unanswered says what kept the probe from an answer.
func unanswered(ctx context.Context, err error) Verdict {
	var timeout net.Error
	if ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout() {
		return unknown("the apiserver did not answer the probe in time")
	}
	return unknown("the probe got no answer: %s", kindOf(err))
}

// kindOf says what kind of trouble a connection had. The error itself may hold
// addresses of the proxy's network and bytes that the apiserver sent, and a
// status is read by others than the proxy's admin.
func kindOf(err error) string {
	var (
		operation    *net.OpError
		resolve      *net.DNSError
		verification *tls.CertificateVerificationError
		timeout      net.Error
	)
	switch {
	case errors.As(err, &verification):
		return "the certificate of the apiserver cannot be verified"
	case errors.As(err, &resolve):
		return "the address of the apiserver cannot be resolved"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the connection took too long"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.As(err, &operation) && operation.Op == "remote error":
		return "the apiserver ended the TLS handshake"
	case errors.As(err, &operation) && operation.Op == "dial":
		return "the apiserver cannot be connected to"
	}
	return "the connection failed"
}
