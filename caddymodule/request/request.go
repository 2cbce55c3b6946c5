package request

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Impersonation is what happens to a client's Impersonate-* headers (ID-6).
type Impersonation string

// The values of the option impersonation.
const (
	ImpersonationStrip   Impersonation = "strip"
	ImpersonationDeny    Impersonation = "deny"
	ImpersonationForward Impersonation = "forward"
)

// Clusters are what requests are decided on. A *serving.Runtime is one.
type Clusters interface {
	// Snapshot returns the clusters, nil before the first full list.
	Snapshot() *serving.Snapshot
	// CountRequest counts an answer; the cluster is nil for none.
	CountRequest(c *serving.Cluster, code int, elapsed time.Duration)
	Metrics() *serving.Metrics
	// Stopping reports whether the process is about to end.
	Stopping() bool
}

// Config is what the requests of one handler have in common.
type Config struct {
	Clusters      Clusters
	Impersonation Impersonation
	// KeepCookies lets cookies pass.
	KeepCookies bool
	// Backlog bounds what callers who do not read make the process hold, nil for
	// no bound.
	Backlog *access.Backlog
	// Lifetime says whether this configuration is in force, nil for always.
	Lifetime *Lifetime
	Logger   *zap.Logger
	Audit    *zap.Logger
}

// Name says which cluster a request is for.
type Name struct {
	// InPath: the path names it, as /clusters/<namespace>/<name>/….
	InPath bool
	// Key names it otherwise; the zero Key is no cluster.
	Key k8swatch.Key
}

// Request is one request on its way. It is the response writer for whatever
// answers it, and commits when the headers of the response are sent.
type Request struct {
	http.ResponseWriter

	config *Config
	r      *http.Request
	name   Name
	// client is the address of the client.
	client     string
	start      time.Time
	credential credential

	// decision is the newest one, refusal the answer of the proxy itself.
	decision *Decision
	refusal  *Refusal
	first    Decision
	decided  int
	// sent says that headers are out, or that there will be none.
	sent bool
	// entry is the request in the backlog, hijacked the client's
	// connection after an upgrade.
	entry    *access.Entry
	hijacked atomic.Pointer[net.Conn]
}

// New begins a request. Finish must be called when it is over.
func New(w http.ResponseWriter, r *http.Request, config *Config, name Name, client string) *Request {
	q := &Request{
		ResponseWriter: w, config: config, r: r, name: name, client: client,
		start: time.Now(), credential: credentialOf(r),
	}
	q.decision = &q.first
	return q
}

// credential is what the authentication takes out of a request.
type credential struct{ authorization, protocols []string }

func credentialOf(r *http.Request) credential {
	return credential{r.Header["Authorization"], r.Header["Sec-Websocket-Protocol"]}
}

func (c credential) restore(r *http.Request) {
	if c.authorization != nil {
		r.Header["Authorization"] = c.authorization
	}
	if c.protocols != nil {
		r.Header["Sec-Websocket-Protocol"] = c.protocols
	}
}

// maxDecisions bounds how often a request is decided whose cluster moves each
// time before the request is on its way.
const maxDecisions = 3

// Decide runs the checks in their order and stops at the first that refuses.
// The Decision is never nil.
func (q *Request) Decide() (*Decision, *Refusal) {
	if q.decided++; q.decided > 1 {
		// The first one may still be in use, by the context of a request that
		// was not sent.
		q.decision = new(Decision)
		q.credential.restore(q.r)
	}
	for i := range checks {
		if refused := checks[i].run(q, q.decision); refused != nil {
			return q.decision, refused
		}
	}
	q.decision.subject = q.subject()
	return q.decision, nil
}

// subject is Decision.subject.
func (q *Request) subject() string {
	d := q.decision
	if d.Identity == nil {
		return d.Key.Namespace + "/" + d.Key.Name + "@" + serving.SourceOf(q.client)
	}
	return d.Key.Namespace + "/" + d.Key.Name + " " + d.Identity.Name
}

// DecideAgain reports whether the request must be decided again after err:
// nothing was sent, because the cluster had ended by then. What is in force now
// decides: a change of service fails no request (CERT-8), and a cluster that was
// removed is a 404.
func (q *Request) DecideAgain(err error) bool {
	var refused *Refusal
	return !q.sent && q.decided < maxDecisions && errors.As(err, &refused) && refused == clusterMoved
}

// Refuse answers with a refusal.
func (q *Request) Refuse(refused *Refusal) error {
	q.logDetail("refusing the request", refused)
	return q.respond(refused)
}

// Fail answers an accepted request that came back with an error instead of a
// response; err may be nil. When headers are out an error can only be logged.
func (q *Request) Fail(err error) error {
	if q.sent {
		if err != nil {
			if entry := q.config.Logger.Check(zapcore.DebugLevel, "relaying the response"); entry != nil {
				entry.Write(zap.Error(err), zap.Stringer("cluster", q.decision.Key))
			}
		}
		return nil
	}
	var refused *Refusal
	switch {
	case err == nil:
		refused = notRelayed
	case IsBodyTooLarge(err):
		refused = BodyTooLarge
	case q.r.Context().Err() != nil:
		q.WriteHeader(serving.StatusClientClosedRequest)
		return nil
	case !errors.As(err, &refused):
		// Not from the transport of this project: another handler stands between.
		refused = ofFailure(upstream.Describe(err))
	}
	q.logDetail("relaying the request", refused)
	return q.respond(refused)
}

// respond answers with a refusal. A client that does not take it holds a request
// no longer than refusalTimeout.
func (q *Request) respond(refused *Refusal) error {
	q.refusal = refused
	timeout := refusalTimeout
	if refused == backlogged {
		timeout = backlogTimeout // such clients are known for not reading
	}
	deadline := http.NewResponseController(q.ResponseWriter)
	limited := deadline.SetWriteDeadline(time.Now().Add(timeout)) == nil
	err := refused.Write(q, q.r)
	if err == nil && limited && q.r.ProtoMajor == 1 {
		// The deadline must hold while the answer goes out, and not for the next
		// request of the connection.
		if err = q.FlushError(); err == nil {
			err = deadline.SetWriteDeadline(time.Time{})
		}
	}
	return err
}

// logDetail logs what the client is not told: addresses of the proxy's network.
func (q *Request) logDetail(doing string, refused *Refusal) {
	if refused.Detail != "" {
		q.config.Logger.Warn(doing, zap.Stringer("cluster", q.decision.Key),
			zap.String("reason", refused.Audit), zap.String("detail", refused.Detail))
	}
}

// IsBodyTooLarge recognises the limit on a request's body.
func IsBodyTooLarge(err error) bool {
	var limit *http.MaxBytesError
	return errors.As(err, &limit)
}
