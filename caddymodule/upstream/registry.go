package upstream

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// ErrEnded is what reading a stream returns that the proxy ended and that has
// no clean end of its own: an upgraded connection, or a response that would
// otherwise look complete.
var ErrEnded = errors.New("the proxy ended the stream")

// What ending may take: less than 5 s in all (STREAM-1).
const (
	// boundaryGrace is what an unfinished event or frame gets.
	boundaryGrace = time.Second
	// closeGrace is what a client gets to answer a WebSocket close frame.
	closeGrace = 2 * time.Second
)

// Kind says how a stream ends.
type Kind int

// The kinds of stream.
const (
	// Response is a response that ends by itself. Ended before, it ends with
	// an error.
	Response Kind = iota
	// Watch is a watch or a followed log. It may end cleanly after any event.
	Watch
	// Upgrade is the connection behind a 101.
	Upgrade
	// WebSocket is one that speaks WebSocket.
	WebSocket
)

// Registry knows the open streams of a process. It outlives a reload of the
// configuration. It is safe for concurrent use.
type Registry struct {
	mu     sync.Mutex
	groups map[*Group]struct{}
	open   int
	// empty is closed when open becomes 0; nil while nobody waits.
	empty chan struct{}
	// over holds the kinds whose streams end as soon as they begin.
	over [WebSocket + 1]bool
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry {
	return &Registry{groups: map[*Group]struct{}{}}
}

// Group is the streams of one cluster at one target, which end together. It
// belongs into the snapshot that decides requests: what begins in a group that
// has ended in the meantime ends at once, so that no request slips past the
// end of its cluster. A response to a request that began before has the rest of
// the grace.
type Group struct {
	registry *Registry
	ended    bool
	limit    time.Time // of the grace, once ended
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
// or a WebSocket, whatever kind says. The stream is open until it is closed
// or, but for a 101, was read to its end. A response without a body is none.
func (g *Group) Track(res *http.Response, kind Kind) {
	s := newStream(res, kind)
	if s == nil {
		return
	}
	g.enter(s, s.place().kind == Response)
}

// Begin follows a request that has no response yet: a write whose body is
// still on its way must not reach an apiserver whose cluster was deleted
// (STREAM-1). The request must be made with the context it returns, which is
// ended with ErrEnded as its cause like a Response. done must be called when
// the response is there or has failed; it does not end the context.
func (g *Group) Begin(ctx context.Context) (_ context.Context, done func()) {
	w := new(waiting)
	ctx, w.cancel = context.WithCancelCause(ctx)
	g.enter(w, false)
	return ctx, w.leave
}

// waiting is a request without a response.
type waiting struct {
	node
	cancel context.CancelCauseFunc
}

func (w *waiting) end() { w.cancel(ErrEnded) }

// enter puts a stream into the registry, and ends it if it comes too late: at
// once, or, if it has a share in the grace of its group, when that is over.
func (g *Group) enter(s stream, share bool) {
	n, r := s.place(), g.registry
	n.stream, n.group = s, g

	r.mu.Lock()
	n.prev, n.next = g.root.prev, &g.root
	n.prev.next, n.next.prev = n, n
	g.open++
	r.open++
	ended, over, limit := g.ended, r.over[n.kind], g.limit
	r.mu.Unlock()
	if !ended && !over {
		return
	}
	if grace := time.Until(limit); grace > 0 && share && !over {
		time.AfterFunc(grace, s.end)
		return
	}
	s.end()
}

// leave takes a stream out of its registry, once.
func (n *node) leave() {
	r := n.group.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.next == nil {
		return
	}
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
	n.group.open--
	r.open--
	if r.open == 0 && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
}

// streams lists those of some kinds. The registry is locked.
func (g *Group) streams(kinds ...Kind) []stream {
	var list []stream
	for n := g.root.next; n != &g.root; n = n.next {
		if slices.Contains(kinds, n.kind) {
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
	now, later := g.streams(Watch, Upgrade, WebSocket), g.streams(Response)
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

// EndKinds ends all streams of these kinds, and for ever those that begin
// later (STREAM-2: watches first, upgraded connections at the deadline). It
// does not wait.
func (r *Registry) EndKinds(kinds ...Kind) {
	var list []stream
	r.mu.Lock()
	for _, kind := range kinds {
		r.over[kind] = true
	}
	// A group that ended is not among them: its streams are ending.
	for g := range r.groups {
		list = append(list, g.streams(kinds...)...)
	}
	r.mu.Unlock()
	endAll(list)
}

func endAll(list []stream) {
	for _, s := range list {
		s.end()
	}
}

// Len is how many streams are open.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// Wait returns when no stream is open, or with the error of ctx.
func (r *Registry) Wait(ctx context.Context) error {
	r.mu.Lock()
	if r.open == 0 {
		r.mu.Unlock()
		return nil
	}
	if r.empty == nil {
		r.empty = make(chan struct{})
	}
	empty := r.empty
	r.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stream is an open stream.
type stream interface {
	place() *node
	// end ends the stream. It does not wait, and may be called again.
	end()
}

// node is a stream's place in the ring of its group, which the registry's lock
// guards.
type node struct {
	kind       Kind
	group      *Group
	stream     stream
	prev, next *node
}

func (n *node) place() *node { return n }
