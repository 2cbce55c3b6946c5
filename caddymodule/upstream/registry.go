package upstream

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/drain"
)

// Registry knows the open streams of a process. It outlives a reload of the
// configuration. It is safe for concurrent use.
type Registry struct {
	open drain.Counter

	mu     sync.Mutex
	groups map[*Group]struct{} // that have not ended
	// over holds the kinds whose streams end as soon as they begin.
	over [WebSocket + 1]bool
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry {
	return &Registry{groups: map[*Group]struct{}{}}
}

// Group holds the streams of one cluster at one target, which end together. The
// snapshot that decides a request names the group. A stream that begins after its
// group has ended ends at once, so that no request outlives its cluster; a
// response to a request that began before has the rest of the grace.
type Group struct {
	registry *Registry
	ended    bool
	limit    time.Time // when the grace is over, once ended
	root     node      // of the ring of open streams
	open     int
}

// NewGroup adds an empty group.
func (r *Registry) NewGroup() *Group {
	g := &Group{registry: r}
	g.root.prev, g.root.next = &g.root, &g.root
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups[g] = struct{}{}
	return g
}

// Track makes a stream of a response by wrapping its body. A 101 is an Upgrade
// or a WebSocket, whatever o.Kind says. The stream is open until it is closed or,
// but for a 101, was read to its end. A response without a body is no stream: ok
// is false and o.Ended is not called.
func (g *Group) Track(res *http.Response, o StreamOptions) (ok bool) {
	s := newStream(res, o)
	if s == nil {
		return false
	}
	g.enter(s, s.entry().kind == Response)
	return true
}

// Begin follows a request that has no response yet: a write whose body is still
// on its way must not reach an apiserver whose cluster was deleted (STREAM-1).
// The request must be made with the context that Begin returns, which ends as a
// Response does, with ErrEnded as its cause. done must be called when the
// response is there or has failed; it does not end the context.
func (g *Group) Begin(ctx context.Context, subject string) (_ context.Context, done func()) {
	w := &waiting{node: node{subject: subject}}
	ctx, w.cancel = context.WithCancelCause(ctx)
	g.enter(w, false)
	return ctx, w.leave
}

// enter puts a stream into the registry. A stream that comes too late is ended:
// at once, or when the grace of its group is over if it may use that.
func (g *Group) enter(s stream, hasGrace bool) {
	n, r := s.entry(), g.registry
	n.stream, n.group = s, g
	r.open.Add(1)

	r.mu.Lock()
	n.prev, n.next = g.root.prev, &g.root
	n.prev.next, n.next.prev = n, n
	g.open++
	ended, over, limit := g.ended, r.over[n.kind], g.limit
	r.mu.Unlock()
	if !ended && !over {
		return
	}
	if grace := time.Until(limit); grace > 0 && hasGrace && !over {
		time.AfterFunc(grace, func() { end(s) })
		return
	}
	end(s)
}

// streams lists the open streams that match. The registry is locked.
func (g *Group) streams(match func(*node) bool) []stream {
	var list []stream
	for n := g.root.next; n != &g.root; n = n.next {
		if match(n) {
			list = append(list, n.stream)
		}
	}
	return list
}

// End ends the group and does not wait: watches and upgraded connections end
// now, which takes them up to 3 s, other responses are cut when grace has
// passed and they have not ended by themselves.
func (g *Group) End(grace time.Duration) {
	r := g.registry
	r.mu.Lock()
	g.ended, g.limit = true, time.Now().Add(grace)
	delete(r.groups, g)
	now := g.streams(func(n *node) bool { return n.kind != Response })
	later := g.streams(func(n *node) bool { return n.kind == Response })
	r.mu.Unlock()
	endAll(now)
	if len(later) > 0 {
		time.AfterFunc(grace, func() { endAll(later) })
	}
}

// Len is how many streams of the group are open.
func (g *Group) Len() int {
	g.registry.mu.Lock()
	defer g.registry.mu.Unlock()
	return g.open
}

// EndKinds ends all streams of these kinds, and those that begin later
// (STREAM-2: watches first, upgraded connections at the deadline). It does not
// wait.
func (r *Registry) EndKinds(kinds ...Kind) {
	r.mu.Lock()
	for _, kind := range kinds {
		r.over[kind] = true
	}
	list := r.streams(func(n *node) bool { return slices.Contains(kinds, n.kind) })
	r.mu.Unlock()
	endAll(list)
}

// EndSubject ends all open streams of a subject and does not wait: watches end
// cleanly, responses are cut, and requests without a response are cancelled
// (ACC-7). An empty subject has no streams. Later streams are not affected: the
// caller refuses the subject first, and checks again between Begin and sending a
// request.
func (r *Registry) EndSubject(subject string) {
	if subject == "" {
		return
	}
	r.mu.Lock()
	list := r.streams(func(n *node) bool { return n.subject == subject })
	r.mu.Unlock()
	endAll(list)
}

// streams lists the open streams that match, but for those of groups that ended,
// which are ending already. The registry is locked.
func (r *Registry) streams(match func(*node) bool) []stream {
	var list []stream
	for g := range r.groups {
		list = append(list, g.streams(match)...)
	}
	return list
}

func endAll(list []stream) {
	for _, s := range list {
		end(s)
	}
}

// Len is how many streams are open.
func (r *Registry) Len() int { return r.open.Len() }

// Wait returns nil when no stream is open, or the error of ctx.
func (r *Registry) Wait(ctx context.Context) error { return r.open.Wait(ctx) }
