package caddymodule

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// endGrace is how long an ordinary response may go on when its cluster is
// deleted or moved (STREAM-1).
const endGrace = 4 * time.Second

// openStreams follows the streams of the process. It is not part of a
// runtime: a reload that changes an option makes a new runtime, and the
// streams go on.
var openStreams = newStreamBook()

type groupKey struct {
	cluster k8swatch.Key
	target  string
}

type streamBook struct {
	registry *upstream.Registry
	mu       sync.Mutex
	groups   map[groupKey]*upstream.Group
}

func newStreamBook() *streamBook {
	return &streamBook{registry: upstream.NewRegistry(), groups: make(map[groupKey]*upstream.Group)}
}

// groupOf returns the group for the streams of a cluster at its address, nil
// for one that is disabled: it has none. A group that ended is replaced.
func (b *streamBook) groupOf(c *k8swatch.Cluster) *upstream.Group {
	if !c.Enabled {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k := groupKey{c.Key, c.Target.Canonical}
	g := b.groups[k]
	if g == nil {
		g = b.registry.NewGroup()
		b.groups[k] = g
	}
	return g
}

// follow ends the streams of the clusters that are gone, disabled or moved
// (STREAM-1). Only the runtime that serves new requests decides.
func (b *streamBook) follow(rt *runtime) {
	snap := rt.load()
	if snap == nil || currentRuntime() != rt {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, g := range b.groups {
		c := snap.clusters[k.cluster]
		if c == nil || !c.spec.Enabled || c.spec.Target.Canonical != k.target {
			delete(b.groups, k)
			g.End(endGrace)
		}
	}
}

// detach takes the groups of an object that is gone although there is another
// of its name; the caller ends them. As in follow, only the runtime that serves
// new requests decides.
func (b *streamBook) detach(rt *runtime, key k8swatch.Key) []*upstream.Group {
	if currentRuntime() != rt {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var groups []*upstream.Group
	for k, g := range b.groups {
		if k.cluster == key {
			delete(b.groups, k)
			groups = append(groups, g)
		}
	}
	return groups
}

// track makes a stream of a response.
func (d *decision) track(r *http.Request, res *http.Response) {
	kind := upstream.Response
	// A response with a length has an end of its own.
	if res.ContentLength < 0 && d.follows(r) {
		kind = upstream.Watch
	}
	d.cluster.streams.Track(res, upstream.Options{Kind: kind, Subject: d.subject()})
}

// subject names the user of a stream, empty when the proxy does not know the user.
func (d *decision) subject() string {
	if d.id == nil {
		return ""
	}
	return d.id.Name
}

// follows reports whether the request is a watch, or a log that is followed.
func (d *decision) follows(r *http.Request) bool {
	path, err := access.ParsePath(d.target.path)
	if err != nil {
		return false // refused long before
	}
	return path.Follows(r.Method, r.URL.RawQuery)
}

// exitWait bounds what the end of the process waits for streams that do not
// end although they were told to.
const exitWait = 2 * time.Second

// exit is the end of the process, begun once.
var exit struct {
	once     sync.Once
	deadline time.Time
	// begun has every answer on HTTP/1.1 close its connection from now on. A
	// server that stops closes idle connections, and a request which is on its
	// way then is lost; nobody may send one that changes something a second time
	// (RFC 9112 section 9.5). HTTP/2 has GOAWAY for that, which the server sends.
	begun atomic.Bool
}

// beginExit ends the watches when the listeners close, and lets upgraded
// connections go on until the grace period is over (STREAM-2).
func beginExit(delay, grace time.Duration) {
	exit.once.Do(func() {
		exit.begun.Store(true)
		exit.deadline = time.Now().Add(delay + grace)
		time.AfterFunc(delay, func() { openStreams.registry.EndKinds(upstream.Watch) })
		time.AfterFunc(delay+grace, func() { openStreams.registry.EndKinds(upstream.Upgrade, upstream.WebSocket) })
	})
}

// finishExit waits for the streams that reverse_proxy and the HTTP servers do
// not wait for: upgraded connections, and those of earlier configurations. It
// runs after all apps have stopped.
func finishExit(ctx context.Context) {
	if exit.deadline.IsZero() {
		return
	}
	patient, cancel := context.WithDeadline(ctx, exit.deadline)
	defer cancel()
	if openStreams.registry.Wait(patient) != nil {
		openStreams.registry.EndKinds(upstream.Watch, upstream.Response, upstream.Upgrade, upstream.WebSocket)
	}
	last, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	_ = openStreams.registry.Wait(last)
	clientConns.wait(last)
}
