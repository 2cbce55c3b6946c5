package serving

import (
	"errors"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Cluster is a compiled object with what serves its requests. It is never
// changed once it is in a Snapshot; a new version of the object shares with the
// old one whatever did not change.
type Cluster struct {
	Spec *k8swatch.Cluster
	// Settings say how identities are forwarded.
	Settings identity.Settings
	// Closed is the reason of Ready for which compilation closed the cluster, empty
	// for an open one. What the apiserver thinks of the proxy is in Trust.
	Closed string

	Trust *trust.Trust
	Relay Relay
	Auth  Auth

	requests *requestCounts
	// assembled is when this version was made.
	assembled time.Time
}

// assemble makes the cluster of a compiled object. It takes over from the
// version before it the connections while target, CA and certificate are the
// same, the authenticator while the resolved auth_config is, and the trust as
// trust.New says.
func (rt *Runtime) assemble(spec *k8swatch.Cluster, old *Cluster) *Cluster {
	streams := rt.process.streams.groupOf(spec)
	if old != nil && old.Spec == spec && old.Relay.Streams == streams {
		return old
	}
	c := &Cluster{
		Spec:      spec,
		Settings:  trust.SettingsOf(spec),
		Relay:     NewRelay(spec, streams),
		requests:  rt.requestsOf(spec, old),
		assembled: time.Now(),
	}
	if spec.Ready.Status != k8swatch.StatusTrue {
		c.Closed = spec.Ready.Reason
	}
	if !spec.Enabled {
		c.Trust = trust.New(spec, nil, nil, rt.answersFor(spec), nil)
		return c
	}
	if old == nil {
		old = new(Cluster)
	}
	c.Auth.warnings = old.Auth.warnings
	if c.Auth.warnings == nil {
		c.Auth.warnings = newAuthWarnings(rt.logger)
	}
	if c.Closed == "" {
		if err := rt.connect(c, old); err != nil {
			rt.logger.Error("assembling a cluster", zap.Stringer("cluster", spec.Key), zap.Error(err))
			c.Closed = k8swatch.ReasonInvalidSpec
		}
	}
	c.Trust = trust.New(spec, c.Relay.Pair, old.Trust, rt.answersFor(spec), func() { rt.statusChanged(spec.Key) })
	return c
}

// answersFor bounds what is read of the answers of a cluster's apiserver.
func (rt *Runtime) answersFor(spec *k8swatch.Cluster) *boundedjson.Reader {
	return rt.process.answers.ForObject(boundedjson.Owner(spec.Key))
}

var errPanicked = errors.New("it panicked")

// connect fills in what a cluster that may serve needs. A panic over an object
// closes that one alone.
func (rt *Runtime) connect(c, old *Cluster) (err error) {
	defer func() {
		if recover() != nil {
			rt.logger.Error("assembling a cluster panicked", zap.Stringer("cluster", c.Spec.Key), zap.ByteString("stack", debug.Stack()))
			err = errPanicked
		}
	}()
	c.Relay.connect(c.Spec, old.Relay)
	return rt.setValidator(c, old.Auth)
}

// retire releases what the next version of a cluster did not take over; next
// is nil when the cluster is gone.
func (c *Cluster) retire(next *Cluster) {
	if next == c {
		return
	}
	if next == nil {
		next = new(Cluster)
	}
	c.Relay.retire(next.Relay)
	c.Trust.Retire(next.Trust)
	c.Auth.retire(next.Auth)
}
