package caddymodule

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func init() {
	caddy.RegisterModule(Transport{})
}

// Transport sends a request that the `proxyauth` handler accepted to the
// apiserver of its cluster, over a connection that verifies the apiserver's
// certificate and presents the certificate of this cluster alone. In FrontProxy
// it asserts the identity in `X-Remote-*` headers; in Passthrough it sends the
// caller's bearer.
//
// It refuses, with a 502, a request on which the handler did not decide and a
// request for any upstream but the one that the `proxyauth` dynamic upstreams
// named.
type Transport struct{}

// CaddyModule returns the Caddy module information.
func (Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.proxyauth",
		New: func() caddy.Module { return new(Transport) },
	}
}

// RoundTrip is the last code before the wire. Everything a client could have
// put into the request is removed here, after all other handlers ran, and the
// identity is written last (ID-7).
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	d, ok := r.Context().Value(decisionKey{}).(*decision)
	if !ok {
		return nil, badGateway("not_decided", "the proxy did not decide on this request: proxyauth_authenticate must come before the proxyauth transport")
	}
	dial, ok := reverseproxy.GetDialInfo(r.Context())
	if !ok || d.upstream == nil || dial.Upstream != d.upstream {
		return nil, badGateway("foreign_upstream", "the proxy is not configured to relay this request: the proxyauth transport serves only the upstream that its dynamic source named")
	}
	c := d.cluster
	frontProxy := c.spec.Mode == v1.ModeFrontProxy
	if frontProxy {
		if refused := c.admit(r.Context()); refused != nil {
			return nil, refused
		}
	}
	body := &bodyWatcher{ReadCloser: r.Body}
	out := d.outgoing(r, body)
	res, err := c.pair.RoundTrip(out)
	if err != nil {
		// The reason why the body ended says more than the broken request.
		if failed := body.failed.Load(); failed != nil && isBodyTooLarge(*failed) {
			return nil, *failed
		}
		return nil, err
	}
	if frontProxy && res.StatusCode == http.StatusUnauthorized {
		discard(res)
		upstreamRejected.WithLabelValues(string(c.spec.Mode)).Inc()
		// The next probe would find out, but not before a minute has passed.
		c.gate.Recheck(c.probe)
		return nil, badGateway("upstream_rejected", "the cluster does not trust this proxy: its apiserver refused the asserted identity; logging in again does not help")
	}
	identity.ScrubResponse(res.Header, d.scrub.KeepCookies)
	d.track(r, res)
	return res, nil
}

// roomForIdentity is how many headers are added to most requests, so that the
// map grows once.
const roomForIdentity = 4

// outgoing builds the request for the apiserver. The header map is new, since
// Caddy may still log the one it has.
func (d *decision) outgoing(r *http.Request, body *bodyWatcher) *http.Request {
	out := new(http.Request)
	*out = *r
	upstream.SetURL(out, d.cluster.spec.Target, d.target.path)
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = body
	}
	// An identity header in a trailer is no header for an apiserver, but
	// what stands behind it may differ: no client trailer is passed on.
	out.Trailer = nil

	h := make(http.Header, len(r.Header)+roomForIdentity)
	maps.Copy(h, r.Header)
	identity.Scrub(h, d.scrub)
	maps.Copy(h, d.impersonation)
	d.cluster.setVia(h, r)
	if d.fwd != nil {
		d.fwd.Assert(h)
	} else if len(d.authorization) > 0 {
		h["Authorization"] = d.authorization
	}
	out.Header = h
	return out
}

// bodyWatcher remembers why reading the client's body failed. The transport
// reads it on another goroutine.
type bodyWatcher struct {
	io.ReadCloser
	failed atomic.Pointer[error]
}

func (b *bodyWatcher) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// discard ends a response that is not relayed; a short body is read so that
// the connection can carry the next request.
func discard(res *http.Response) {
	if res.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	}
	_ = res.Body.Close()
}

// Interface guards.
var (
	_ http.RoundTripper = (*Transport)(nil)
	_ caddy.Module      = (*Transport)(nil)
)

var errNoDecision = errors.New("the proxyauth handler did not decide on this request")
