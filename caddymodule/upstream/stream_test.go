package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// reports collects what Options.Ended is told.
type reports struct {
	mu   sync.Mutex
	list []Ending
}

func (r *reports) add(e Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

func (r *reports) get() []Ending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// SIG-2: whatever ends a stream, its end is reported once, with its duration and
// its bytes.
func TestEndIsReportedOnce(t *testing.T) {
	read := func(t *testing.T, res *http.Response) {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		_ = res.Body.Close()
	}
	for name, tt := range map[string]struct {
		kind Kind
		// act ends the stream one second after it began.
		act  func(r *Registry, g *Group, body *networkBody, res *http.Response)
		want Ending
	}{
		"a watch that the apiserver ends": {Watch, func(_ *Registry, _ *Group, body *networkBody, _ *http.Response) { body.send.Close() }, Ending{time.Second, 3, 0}},
		"a watch that breaks": {Watch, func(_ *Registry, _ *Group, body *networkBody, _ *http.Response) {
			body.send.CloseWithError(io.ErrUnexpectedEOF)
		}, Ending{time.Second, 3, 0}},
		"a watch of a cluster that ended":     {Watch, func(_ *Registry, g *Group, _ *networkBody, _ *http.Response) { g.End(0) }, Ending{time.Second, 3, 0}},
		"a watch of a process that ends":      {Watch, func(r *Registry, _ *Group, _ *networkBody, _ *http.Response) { r.EndKinds(Watch) }, Ending{time.Second, 3, 0}},
		"a watch of a revoked user":           {Watch, func(r *Registry, _ *Group, _ *networkBody, _ *http.Response) { r.EndSubject("alice") }, Ending{time.Second, 3, 0}},
		"a watch that the client leaves":      {Watch, func(_ *Registry, _ *Group, _ *networkBody, res *http.Response) { res.Body.Close() }, Ending{time.Second, 3, 0}},
		"a response that ends":                {Response, func(_ *Registry, _ *Group, body *networkBody, _ *http.Response) { body.send.Close() }, Ending{time.Second, 3, 0}},
		"a response that is cut":              {Response, func(_ *Registry, g *Group, _ *networkBody, _ *http.Response) { g.End(time.Second) }, Ending{2 * time.Second, 3, 0}},
		"a response that the client does not": {Response, func(_ *Registry, _ *Group, _ *networkBody, res *http.Response) { res.Body.Close() }, Ending{time.Second, 3, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, got, body := NewRegistry(), new(reports), newNetworkBody()
				g := r.NewGroup()
				res := response(body, "application/json")
				if !g.Track(res, StreamOptions{Kind: tt.kind, Subject: "alice", Ended: got.add}) {
					t.Fatal("it is no stream")
				}
				go func() {
					_, _ = io.WriteString(body.send, "{}\n")
					time.Sleep(time.Second)
					tt.act(r, g, body, res)
				}()
				read(t, res)
				synctest.Wait()
				if diff := cmp.Diff([]Ending{tt.want}, got.get()); diff != "" {
					t.Error(diff)
				}
				if r.Len() != 0 || g.Len() != 0 {
					t.Errorf("%d streams are open", r.Len())
				}
			})
		})
	}
}

// SIG-2: an upgraded connection counts both ways, and ends when it is closed.
func TestEndOfUpgradeIsReported(t *testing.T) {
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, got, conn := NewRegistry(), new(reports), newConn()
				res := switched(conn, protocol)
				r.NewGroup().Track(res, StreamOptions{Ended: got.add})
				stream := res.Body.(io.ReadWriteCloser)
				go func() { _, _ = conn.send.Write([]byte{0x82, 3, 'a', 'b', 'c'}) }()
				if _, err := io.ReadFull(stream, make([]byte, 5)); err != nil {
					t.Error(err)
				}
				if _, err := stream.Write([]byte{0x82, 1, 'x'}); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				if n := len(got.get()); n != 0 {
					t.Errorf("%d reports of an open stream", n)
				}
				_ = stream.Close()
				_ = stream.Close()
				if diff := cmp.Diff([]Ending{{time.Minute, 5, 3}}, got.get()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A response without a body is no stream and has no end to report.
func TestNothingIsNotReported(t *testing.T) {
	got := new(reports)
	if NewRegistry().NewGroup().Track(response(http.NoBody, ""), StreamOptions{Ended: got.add}) || len(got.get()) > 0 {
		t.Error("it is a stream")
	}
}

// ACC-7: the end of a subject ends its streams in all clusters, and touches no
// stream of another subject.
func TestEndSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		a, b := r.NewGroup(), r.NewGroup()
		var ended []*http.Response
		for _, g := range []*Group{a, b} {
			for _, subject := range []string{"alice", "bob", ""} {
				watch, other := response(newNetworkBody(), "application/json"), response(newNetworkBody(), "application/json")
				g.Track(watch, StreamOptions{Kind: Watch, Subject: subject})
				g.Track(other, StreamOptions{Kind: Response, Subject: subject})
				if subject == "alice" {
					ended = append(ended, watch, other)
				}
				t.Cleanup(func() { watch.Body.Close(); other.Body.Close() })
			}
		}
		waiting, done := a.Begin(t.Context(), "alice")
		defer done()
		others, doneToo := a.Begin(t.Context(), "bob")
		defer doneToo()
		r.EndSubject("")
		r.EndSubject("carol")
		if waiting.Err() != nil {
			t.Error("a request of another subject ended")
		}
		r.EndSubject("alice")
		for i, res := range ended {
			want := []error{nil, ErrEnded}[i%2]
			if _, err := io.ReadAll(res.Body); err != want {
				t.Errorf("stream %d: %v, want %v", i, err, want)
			}
		}
		if cause := context.Cause(waiting); !errors.Is(cause, ErrEnded) {
			t.Errorf("the waiting request ended with %v", cause)
		}
		if others.Err() != nil {
			t.Error("a request of another subject ended")
		}
		// Four streams of each other subject and two requests that wait.
		if n := r.Len(); n != 8+2 {
			t.Errorf("%d streams are open, want 10", n)
		}
	})
}

// Reports and ends meet from many goroutines; -race looks on.
func TestReportsConcurrently(t *testing.T) {
	r, got := NewRegistry(), new(reports)
	var all sync.WaitGroup
	for i := range 100 {
		g := r.NewGroup()
		res := response(newNetworkBody(), "application/json")
		g.Track(res, StreamOptions{Kind: Kind(i % 2), Subject: "alice", Ended: got.add})
		all.Go(func() { _, _ = io.Copy(io.Discard, res.Body) })
		all.Go(func() { r.EndSubject("alice") })
		all.Go(func() { g.End(0) })
		all.Go(func() { _ = res.Body.Close() })
	}
	all.Wait()
	if err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(got.get()); n != 100 {
		t.Errorf("%d reports, want 100", n)
	}
}
