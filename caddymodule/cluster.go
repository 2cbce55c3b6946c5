package caddymodule

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// cluster is a compiled cluster with what serves its requests. It is never
// changed once it is in a snapshot; a new version of the object shares with
// the old one whatever did not change.
type cluster struct {
	spec     *k8swatch.Cluster
	settings identity.Settings
	// closed is the answer while the cluster may not serve, nil otherwise.
	closed *refusal
	// auth is nil when bearers are not validated.
	auth authn.Authenticator
	pair *upstream.Pair
	// gate is closed until the apiserver was seen to honour the proxy. It is
	// that of gateSet, which may be the last set that could be probed: a
	// certificate that is missing for a moment does not undo a verdict.
	gate    *upstream.Gate[probe.Verdict]
	gateSet string
	// renewed is what the set before was seen as, for the status, where
	// this one is its renewal (TRUST-2).
	renewed status.TrustState
	// probing presents the front-proxy certificate where pair does not: in
	// preparation, and while the cluster may not serve.
	probing *upstream.Pair
	// certGate is closed until the apiserver was seen to take client_cert for
	// nobody (CERT-9); certSet is what it is about.
	certGate *upstream.Gate[probe.CertVerdict]
	certSet  string
	// entrance is what requests meet of the two gates.
	entrance entrance
	reach    *reachability
	heard    *hearsay
	// audience warns of tokens that are not for it, idpFault of a provider that
	// cannot be asked.
	audience, idpFault *occasionalWarning
	streams            *upstream.Group
	requests           *requestCounts
	// via is the pseudonym of this cluster in Via headers (URL-6); viaHTTP1 and
	// viaHTTP2 are the entry of nearly all requests, shared between them.
	via                string
	viaHTTP1, viaHTTP2 []string

	authID, pairID string

	// assembled is when this version was made.
	assembled time.Time
}

// assemble makes the cluster of a compiled object. It takes over from the
// version before it the connections when target, trust and certificate are
// the same, the trust gate when the set is, and the authenticator when the
// resolved auth_config is.
func (rt *runtime) assemble(spec *k8swatch.Cluster, old *cluster) *cluster {
	if old != nil && old.spec == spec && old.streams == openStreams.groupOf(spec) {
		return old
	}
	c := &cluster{
		spec: spec,
		settings: identity.Settings{
			UserPrefix: spec.UserPrefix, GroupPrefix: spec.GroupPrefix, ForwardUID: spec.ForwardUID,
		},
		closed:   closedFor(spec),
		entrance: wall{},
		requests: rt.requestsOf(spec, old),
		via:      viaPseudonym(spec),

		assembled: time.Now(),
	}
	c.viaHTTP1, c.viaHTTP2 = []string{"1.1 " + c.via}, []string{"2.0 " + c.via}
	if !spec.Enabled {
		return c
	}
	c.streams = openStreams.groupOf(spec)
	if old == nil {
		old = new(cluster)
	}
	if c.closed == nil {
		if err := rt.connect(c, old); err != nil {
			rt.logger.Error("assembling a cluster", zap.Stringer("cluster", spec.Key), zap.Error(err))
			c.closed = notReady(spec.Mode, k8swatch.ReasonInvalidSpec)
		}
	}
	rt.takeTrust(c, old)
	if c.audience, c.idpFault = old.audience, old.idpFault; c.audience == nil {
		c.audience, c.idpFault = &occasionalWarning{logger: rt.logger}, &occasionalWarning{logger: rt.logger}
	}
	return c
}

var errPanicked = errors.New("it panicked")

// connect fills in what a cluster that may serve needs. A panic over an object
// closes that one alone.
func (rt *runtime) connect(c, old *cluster) (err error) {
	defer func() {
		if recover() != nil {
			rt.logger.Error("assembling a cluster panicked", zap.Stringer("cluster", c.spec.Key), zap.ByteString("stack", debug.Stack()))
			err = errPanicked
		}
	}()
	spec := c.spec
	c.pairID = spec.CredentialID()
	if old.pair != nil && old.pairID == c.pairID {
		c.pair = old.pair
	} else {
		c.pair = newPair(spec, spec.Presented())
	}
	c.authID = string(spec.UID) + "/" + authScope(spec)
	if old.auth != nil && old.authID == c.authID {
		c.auth = old.auth
	} else if !spec.Auth.DisableValidation {
		auth, err := rt.authenticator(c)
		if err != nil {
			return err
		}
		c.auth = auth
	}
	return nil
}

func newPair(spec *k8swatch.Cluster, cert *k8swatch.ClientCertificate) *upstream.Pair {
	cfg := upstream.Config{Target: spec.Target, ServerName: spec.ServerName, RootCAs: spec.CA}
	if cert != nil {
		cfg.Certificate = &cert.TLS
	}
	return upstream.New(cfg)
}

// requestDrain is how long authenticators outlive the snapshot that they were
// in: requests that found them there may still read keys. Such a request is
// older than the snapshot, its header takes up to 10 s to read on the listener,
// and the provider up to 10 s to answer (AUTH-13).
const requestDrain = 30 * time.Second

// retire releases what the next version of a cluster did not take over; next
// is nil when the cluster is gone.
func (c *cluster) retire(next *cluster) {
	if next == c {
		return
	}
	if c.pair != nil && (next == nil || next.pair != c.pair) {
		c.pair.Retire()
	}
	if c.probing != nil && (next == nil || next.probing != c.probing) {
		c.probing.Retire()
	}
	if c.auth != nil && (next == nil || next.auth != c.auth) {
		time.AfterFunc(requestDrain, func() { closeAuthenticator(c.auth) })
	}
}

// closedFor is row 8 of section 3: why a compiled cluster may not serve.
func closedFor(spec *k8swatch.Cluster) *refusal {
	if spec.Ready.Status == k8swatch.StatusTrue {
		return nil
	}
	switch spec.Ready.Reason {
	case k8swatch.ReasonUpstreamModeUnknown:
		return unavailable("mode_unknown", "this proxy replica cannot serve upstream mode %s yet", modeText(spec.Mode))
	case k8swatch.ReasonUpstreamModeNotAllowed:
		return unavailable("mode_not_enabled", "upstream mode %s is not enabled on this proxy installation", modeText(spec.Mode))
	case k8swatch.ReasonAudienceValidationRequired:
		return unavailable("audience_validation", "upstream mode %s requires OIDC audience validation", modeText(spec.Mode))
	}
	return notReady(spec.Mode, spec.Ready.Reason)
}

// maxModeText bounds a mode this version does not know: the object's author
// chose it, and it goes into answers and the audit line.
const maxModeText = 64

func modeText(mode v1.UpstreamMode) string {
	if runes := []rune(string(mode)); len(runes) > maxModeText {
		return string(runes[:maxModeText]) + "…"
	}
	return string(mode)
}

func notReady(mode v1.UpstreamMode, reason string) *refusal {
	if mode == v1.ModeFrontProxy {
		return unavailable("not_ready", "this cluster is not ready for upstream mode FrontProxy: %s", reason)
	}
	return unavailable("not_ready", "this cluster is not ready: %s", reason)
}

// forward makes the identity the apiserver is told (row 10). In Passthrough
// only a username that says nothing is refused, and what was too large to keep.
func (c *cluster) forward(d *decision) *identity.Refusal {
	if d.id == nil {
		return nil
	}
	if c.spec.Mode != v1.ModeFrontProxy {
		return identity.CheckPassthrough(d.id)
	}
	fwd, refused := d.result.Forward(c.settings)
	if refused != nil {
		return refused
	}
	d.fwd = fwd
	return nil
}

// viaPseudonym names the cluster in Via headers alike on every replica.
func viaPseudonym(spec *k8swatch.Cluster) string {
	sum := sha256.Sum256([]byte(spec.Key.String() + "\n" + spec.Target.Canonical))
	return "proxyauth-" + hex.EncodeToString(sum[:8])
}

// viaLoop reports whether a request already came through this cluster.
func (c *cluster) viaLoop(values []string) bool {
	for _, value := range values {
		for entry := range strings.SplitSeq(value, ",") {
			_, by := cutSpace(entry)
			if by, _ = cutSpace(by); by == c.via {
				return true
			}
		}
	}
	return false
}

// cutSpace cuts at the first white space (RFC 9110, section 5.6.3).
func cutSpace(s string) (before, after string) {
	s = strings.Trim(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// setVia puts the cluster's own entry in place of Caddy's, which reverse_proxy
// has added last (URL-6).
func (c *cluster) setVia(h http.Header, r *http.Request) {
	protocol := strconv.Itoa(r.ProtoMajor) + "." + strconv.Itoa(r.ProtoMinor)
	values := h["Via"]
	if n := len(values); n > 0 && values[n-1] == protocol+" Caddy" {
		values = values[:n-1]
	}
	var own []string
	switch protocol {
	case "1.1":
		own = c.viaHTTP1
	case "2.0":
		own = c.viaHTTP2
	default:
		own = []string{protocol + " " + c.via}
	}
	if len(values) > 0 {
		own = append(values[:len(values):len(values)], own...)
	}
	h["Via"] = own
}
