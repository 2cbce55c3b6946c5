package serving

import (
	"context"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// Process is everything that this product has once a process. It outlives
// every configuration. Make it with NewProcess.
type Process struct {
	// Metrics are counted by all runtimes; each configuration registers them.
	Metrics *Metrics
	// Log writes to the log of the configuration in force.
	Log *LiveLog
	// Connections are the clients' connections of all configurations.
	Connections *Connections
	// Backlog is the answers that their callers do not read.
	Backlog *access.Backlog
	// Events tells the configuration in force of clusters and of the leader.
	Events *Events

	logger   *zap.Logger
	clientIP func(context.Context) string

	// answers limits what is read of the answers of apiservers and identity
	// providers, all of them together (AUTH-13).
	answers *boundedjson.Reader

	runtimes  usagePool[*Runtime]
	elections usagePool[*election]
	// certificates are the proxy's own, by the names of their Secrets.
	certificates usagePool[*sharedCertificate]
	streams      *streamGroups
	shutdown     shutdown
	// unknown counts the requests that no cluster served: the names in them are
	// the client's to choose.
	unknown requestCounts

	mu sync.Mutex
	// inForce lists the runtimes of the configurations that have come into
	// force, the newest last. There are two only while a reload replaces one by
	// the other.
	inForce []*Runtime
}

// NewProcess makes a Process. clientIP is the address of the client that sent
// the request with a context, without the zone of an IPv6 address.
func NewProcess(log *LiveLog, clientIP func(context.Context) string) *Process {
	p := &Process{
		Log:         log,
		Connections: newConnections(),
		Backlog:     access.NewBacklog(),
		logger:      zap.New(log).Named("proxyauth"),
		clientIP:    clientIP,
		answers:     boundedjson.NewReader(boundedjson.LargeAnswers),
		streams:     newStreamGroups(),
	}
	p.Metrics = newMetrics(p)
	p.Events = newEvents(p.standing)
	return p
}

// standing is what events tell of.
func (p *Process) standing() standing {
	rt := p.Current()
	if rt == nil {
		return standing{}
	}
	return standing{inForce: true, clusters: rt.clusters(), leads: rt.Leading()}
}

// Acquire finds or makes the runtime of these options. It does no I/O. Each
// Acquire needs one Release.
func (p *Process) Acquire(o Options) (*Runtime, error) {
	return p.runtimes.acquire(o.Key(), func() (*Runtime, error) { return newRuntime(p, o) })
}

// Release ends the runtime when no configuration uses it any more.
func (p *Process) Release(rt *Runtime) {
	if p.runtimes.release(rt.options.Key()) {
		rt.end()
	}
}

// Runtimes is how many runtimes are in use, started or not.
func (p *Process) Runtimes() int { return p.runtimes.size() }

// Current is the runtime that serves new requests, or nil.
func (p *Process) Current() *Runtime {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.inForce) == 0 {
		return nil
	}
	return p.inForce[len(p.inForce)-1]
}

func (p *Process) putInForce(rt *Runtime) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.inForce, rt) {
		p.inForce = append(p.inForce, rt)
	}
}

func (p *Process) takeOutOfForce(rt *Runtime) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inForce = slices.DeleteFunc(p.inForce, func(other *Runtime) bool { return other == rt })
}

// updateLeadership has every runtime look whether it leads. It is called when
// another runtime has begun to serve: only that one may lead.
func (p *Process) updateLeadership() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, rt := range p.inForce {
		rt.inForce.Store(i == len(p.inForce)-1)
		rt.updateLeadership()
	}
}
