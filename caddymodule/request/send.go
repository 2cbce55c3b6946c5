package request

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Send sends an accepted request to the apiserver of its cluster. Everything a
// client could have put into the request is removed here, after all other
// handlers ran, and the identity is written last (ID-7). An error is a *Refusal,
// the end of the client's context, or that of a body over a limit.
func (d *Decision) Send(r *http.Request, metrics *serving.Metrics) (*http.Response, error) {
	c := d.Cluster
	if reason := c.Trust.AwaitVerdict(r.Context()); reason != "" {
		return nil, notTrusted(c.Spec.Mode, reason)
	}
	ctx, answered := c.Relay.Streams.Begin(r.Context(), d.subject)
	defer answered()
	if errors.Is(context.Cause(ctx), upstream.ErrEnded) {
		return nil, clusterMoved
	}
	body := &bodyWatcher{ReadCloser: r.Body}
	res, err := c.Relay.Pair.RoundTrip(d.outgoing(ctx, r, body))
	if err != nil {
		return nil, failure(r, ctx, body, err)
	}
	if c.Relay.Pair.OpenedSinceProbe() {
		c.Trust.Reprobe()
	}
	if res.StatusCode == http.StatusUnauthorized && c.Spec.Mode == v1.ModeFrontProxy && d.isAboutIdentity(r, res) {
		_ = res.Body.Close()
		metrics.UpstreamRejected.WithLabelValues(string(c.Spec.Mode)).Inc()
		// The next probe would notice, but only after up to a minute.
		c.Trust.Reprobe()
		return nil, upstreamRejected
	}
	if refused := d.checkAnswer(res); refused != nil {
		_ = res.Body.Close()
		return nil, refused
	}
	d.track(r, res)
	if d.body.ReadCloser = res.Body; res.StatusCode != http.StatusSwitchingProtocols {
		d.body.client = r.Context()
		res.Body = &d.body
	}
	return res, nil
}

// checkAnswer refuses an answer that cannot be passed on: one without a status
// that HTTP knows, and one that sends the client to another place (RELAY-4). It
// removes from the others what acts on more than this answer (ID-5).
func (d *Decision) checkAnswer(res *http.Response) *Refusal {
	code := res.StatusCode
	if code != http.StatusSwitchingProtocols && (code < 200 || code > 599) {
		return invalidStatus
	}
	redirects := upstream.Redirects{Target: d.Cluster.Spec.Target}
	if d.inPath {
		redirects.Prefix = access.ClusterPath(d.Key.Namespace, d.Key.Name)
	}
	if redirects.Rewrite(res.Header, code, d.Cluster.Spec.Target.BasePath+d.Path) != nil {
		return foreignRedirect
	}
	identity.ScrubAnswer(res.Header, d.scrub.KeepCookies)
	return nil
}

// failure says why there is no response. The error of net/http is not passed
// on: Caddy logs it, and it may quote what the apiserver sent (SIG-3).
func failure(r *http.Request, ctx context.Context, body *bodyWatcher, err error) error {
	if failed := body.failed.Load(); failed != nil && IsBodyTooLarge(*failed) {
		// The reason why the body ended says more than the broken request.
		return *failed
	}
	if gone := r.Context().Err(); gone != nil {
		return gone
	}
	if errors.Is(context.Cause(ctx), upstream.ErrEnded) {
		return clusterRemoved
	}
	return ofFailure(upstream.Describe(err))
}

// maxStatus is how much of a 401 is read to see who wrote it, in bytes.
const maxStatus = 64 << 10

// isAboutIdentity reports whether a 401 is the apiserver's verdict on the
// asserted identity. What a pod or service behind the proxy subresource answers
// is the answer of that program, unless it is a Status as the apiserver writes
// it.
func (d *Decision) isAboutIdentity(r *http.Request, res *http.Response) bool {
	if info, err := d.parsed.Info(r.Method, nil); err != nil || !info.IsResourceRequest || info.Subresource != "proxy" {
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
func (d *Decision) outgoing(ctx context.Context, r *http.Request, body *bodyWatcher) *http.Request {
	out := r.WithContext(ctx)
	upstream.SetURL(out, d.Cluster.Spec.Target, d.Path)
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
	d.Cluster.Relay.SetVia(h, r.ProtoMajor, r.ProtoMinor)
	if d.upgradeHeader != nil {
		h["Upgrade"] = d.upgradeHeader
	}
	if d.protocols != nil {
		h["Sec-WebSocket-Protocol"] = d.protocols
	}
	if d.Forwarded != nil {
		d.Forwarded.Assert(h)
	} else if len(d.authorization) > 0 {
		h["Authorization"] = d.authorization
	}
	out.Header = h
	return out
}

// track makes a stream of a response. The `end` event of the audit belongs into
// upstream.StreamOptions.Ended: the decision has the user and the cluster.
func (d *Decision) track(r *http.Request, res *http.Response) {
	kind := upstream.Response
	// A response with a length has an end of its own. A watch has none, nor has a
	// log that is followed.
	if res.ContentLength < 0 && d.parsed.Follows(r.Method, r.URL.RawQuery) {
		kind = upstream.Watch
	}
	o := upstream.StreamOptions{Kind: kind, Subject: d.subject}
	if d.entry != nil {
		o.Client = d.entry
	}
	d.Cluster.Relay.Streams.Track(res, o)
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
