package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
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
	if refused := c.admit(r.Context()); refused != nil {
		return nil, refused
	}
	ctx, answered := c.streams.Begin(r.Context(), d.subject())
	defer answered()
	if errors.Is(context.Cause(ctx), upstream.ErrEnded) {
		return nil, clusterMoved
	}
	body := &bodyWatcher{ReadCloser: r.Body}
	res, err := c.pair.RoundTrip(d.outgoing(ctx, r, body))
	if err != nil {
		return nil, failure(r, ctx, body, err)
	}
	if c.pair.Fresh() {
		c.entrance.Recheck()
	}
	if frontProxy && res.StatusCode == http.StatusUnauthorized && d.isAboutUs(r, res) {
		_ = res.Body.Close()
		upstreamRejected.WithLabelValues(string(c.spec.Mode)).Inc()
		// The next probe would find out, but not before a minute has passed.
		c.entrance.Recheck()
		return nil, badGateway("upstream_rejected", "the cluster does not trust this proxy: its apiserver refused the asserted identity; logging in again does not help")
	}
	identity.ScrubResponse(res.Header, d.scrub.KeepCookies)
	d.track(r, res)
	return res, nil
}

// The cluster ended before its apiserver answered, or before anything was sent.
var (
	clusterRemoved = unavailable("cluster_removed", "the cluster was removed from the proxy, or moved, before it answered")
	clusterMoved   = unavailable("cluster_removed", "the cluster was removed from the proxy, or moved, before the request was sent")
)

// failure says why there is no response. The error of net/http is not passed
// on: Caddy logs it, and it may quote what the apiserver sent (SIG-3).
func failure(r *http.Request, ctx context.Context, body *bodyWatcher, err error) error {
	if failed := body.failed.Load(); failed != nil && isBodyTooLarge(*failed) {
		// The reason why the body ended says more than the broken request.
		return *failed
	}
	if gone := r.Context().Err(); gone != nil {
		return gone
	}
	if errors.Is(context.Cause(ctx), upstream.ErrEnded) {
		return clusterRemoved
	}
	return describeFailure(err)
}

// maxStatus is how much of a 401 is read to see whose it is, in bytes.
const maxStatus = 64 << 10

// isAboutUs reports whether a 401 is the apiserver's word on the asserted
// identity. What a pod or service behind the proxy subresource answers is
// that program's own, unless it is a Status as the apiserver writes it.
func (d *decision) isAboutUs(r *http.Request, res *http.Response) bool {
	path, err := access.ParsePath(d.target.path)
	if err != nil {
		return true
	}
	if info, err := path.Info(r.Method, nil); err != nil || !info.IsResourceRequest || info.Subresource != "proxy" {
		return true
	}
	if res.ContentLength < 0 || res.ContentLength > maxStatus {
		return false
	}
	content, err := io.ReadAll(io.LimitReader(res.Body, maxStatus))
	res.Body = &reread{Reader: io.MultiReader(bytes.NewReader(content), res.Body), Closer: res.Body}
	var status metav1.Status
	return err == nil && json.Unmarshal(content, &status) == nil &&
		status.Kind == "Status" && status.Reason == metav1.StatusReasonUnauthorized
}

// reread is a body of which a part was read.
type reread struct {
	io.Reader
	io.Closer
}

// roomForIdentity is how many headers are added to most requests, so that the
// map grows once.
const roomForIdentity = 4

// outgoing builds the request for the apiserver. The header map is new, since
// Caddy may still log the one it has.
func (d *decision) outgoing(ctx context.Context, r *http.Request, body *bodyWatcher) *http.Request {
	out := r.WithContext(ctx)
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
	if d.asked != nil {
		h["Upgrade"] = d.asked
	}
	if d.protocols != nil {
		h["Sec-WebSocket-Protocol"] = d.protocols
	}
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

// Interface guards.
var (
	_ http.RoundTripper = (*Transport)(nil)
	_ caddy.Module      = (*Transport)(nil)
)
