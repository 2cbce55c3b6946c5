package upstream

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// networkBody is a response body whose Read waits until something is sent or
// Close is called, like one on the network.
type networkBody struct {
	*io.PipeReader
	send *io.PipeWriter
}

func newNetworkBody() *networkBody {
	r, w := io.Pipe()
	return &networkBody{r, w}
}

func response(body io.ReadCloser, contentType string) *http.Response {
	return &http.Response{
		StatusCode: 200, Body: body, ContentLength: -1, Header: http.Header{"Content-Type": {contentType}},
	}
}

func protobufEvent(n int) []byte {
	event := make([]byte, 4+n)
	binary.BigEndian.PutUint32(event, uint32(n))
	return event
}

// STREAM-1: a watch ends cleanly, after a whole event, and at once when it
// waits for the next.
func TestWatchEnds(t *testing.T) {
	half, rest := `{"type":"ADDED","object":{"a`, `":1}}`+"\n"
	event := half + rest
	pb := string(protobufEvent(5))
	tests := []struct {
		name, contentType string
		before, after     string // sent before and after the end
		want              string
		took              time.Duration
	}{
		{"waiting for the first event", "application/json", "", "", "", 0},
		{"between two events", "application/json", event, "", event, 0},
		{"in the middle of an event", "application/json", event + half, rest + event + event, event + event, 0},
		{"in an event that does not go on", "application/json", event + half, "", event + half, boundaryGrace},
		{"a log", "text/plain; charset=utf-8", "line\nlin", "e\nline\n", "line\nline\n", 0},
		{"protobuf between two", "application/vnd.kubernetes.protobuf;stream=watch", pb, "", pb, 0},
		{"protobuf in the middle", "application/vnd.kubernetes.protobuf;stream=watch", pb + pb[:3], pb[3:] + pb, pb + pb, 0},
		{"protobuf in the payload", "application/vnd.kubernetes.protobuf;stream=watch", pb[:7], pb[7:] + pb, pb, 0},
		{"of a type without events", "application/octet-stream", "ab", "", "ab", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRegistry()
				g := r.NewGroup()
				body := newNetworkBody()
				res := response(body, tt.contentType)
				g.Track(res, StreamOptions{Kind: Watch})
				start := time.Now()
				go func() {
					io.WriteString(body.send, tt.before)
					synctest.Wait()
					g.End(time.Minute)
					g.End(time.Minute)
					io.WriteString(body.send, tt.after)
				}()
				got, err := io.ReadAll(res.Body)
				if string(got) != tt.want || err != nil {
					t.Errorf("read %q, %v; want %q", got, err, tt.want)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
				if r.Len() != 0 || g.Len() != 0 {
					t.Errorf("%d streams are open", r.Len())
				}
				if n, err := res.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("after the end: %d, %v", n, err)
				}
				res.Body.Close()
				time.Sleep(boundaryGrace)
			})
		})
	}
}

// STREAM-1: another response may finish; cut, it does not look complete.
func TestResponseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewRegistry().NewGroup()
		quick, slow := newNetworkBody(), newNetworkBody()
		quickRes, slowRes := response(quick, "application/json"), response(slow, "application/json")
		g.Track(quickRes, StreamOptions{Kind: Response})
		g.Track(slowRes, StreamOptions{Kind: Response})
		go func() {
			io.WriteString(slow.send, "[1,")
			g.End(4 * time.Second)
			time.Sleep(3 * time.Second)
			io.WriteString(quick.send, "[1,2]")
			quick.send.Close()
		}()
		start := time.Now()
		var quickly sync.WaitGroup
		quickly.Go(func() {
			if got, err := io.ReadAll(quickRes.Body); string(got) != "[1,2]" || err != nil {
				t.Errorf("quick: %q, %v", got, err)
			}
		})
		if got, err := io.ReadAll(slowRes.Body); string(got) != "[1," || err != ErrEnded || time.Since(start) != 4*time.Second {
			t.Errorf("slow: %q, %v after %s", got, err, time.Since(start))
		}
		quickly.Wait()
	})
}

// A stream that begins when its group or its kind has ended ends at once.
func TestTrackAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := r.NewGroup()
		g.End(0)
		for kind, want := range map[Kind]error{Watch: nil, Response: ErrEnded} {
			res := response(newNetworkBody(), "application/json")
			g.Track(res, StreamOptions{Kind: kind})
			if _, err := io.ReadAll(res.Body); err != want {
				t.Errorf("kind %d: %v", kind, err)
			}
			res.Body.Close()
		}
		r.EndKinds(Watch)
		g = r.NewGroup()
		res := response(newNetworkBody(), "application/json")
		g.Track(res, StreamOptions{Kind: Watch})
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Error(err)
		}
		res.Body.Close()
		open := newNetworkBody()
		res = response(open, "application/json")
		g.Track(res, StreamOptions{Kind: Response})
		go open.send.Close()
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Errorf("another kind: %v", err)
		}
	})
}

// STREAM-1: a response that comes when its cluster has just ended has the rest
// of the grace: its request began before.
func TestResponseAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := r.NewGroup()
		_, done := g.Begin(t.Context(), "")
		g.End(4 * time.Second)
		time.Sleep(time.Second)
		quick, slow := newNetworkBody(), newNetworkBody()
		quickRes, slowRes := response(quick, "application/json"), response(slow, "application/json")
		g.Track(quickRes, StreamOptions{Kind: Response})
		g.Track(slowRes, StreamOptions{Kind: Response})
		done()
		go func() {
			io.WriteString(quick.send, "[1,2]")
			quick.send.Close()
			io.WriteString(slow.send, "[1,")
		}()
		if got, err := io.ReadAll(quickRes.Body); string(got) != "[1,2]" || err != nil {
			t.Errorf("quick: %q, %v", got, err)
		}
		start := time.Now()
		if got, err := io.ReadAll(slowRes.Body); string(got) != "[1," || err != ErrEnded || time.Since(start) != 3*time.Second {
			t.Errorf("slow: %q, %v after %s", got, err, time.Since(start))
		}
		// A watch has an end of its own, and an upgrade must not go on.
		watch := response(newNetworkBody(), "application/json")
		g.Track(watch, StreamOptions{Kind: Watch})
		if _, err := io.ReadAll(watch.Body); err != nil {
			t.Errorf("watch: %v", err)
		}
		if r.Len() != 0 {
			t.Errorf("%d streams are open", r.Len())
		}
	})
}

// Bodies without anything to end are left alone.
func TestTrackOfNothing(t *testing.T) {
	r := NewRegistry()
	g := r.NewGroup()
	for _, res := range []*http.Response{response(http.NoBody, ""), response(nil, ""), {StatusCode: 101, Body: newNetworkBody()}} {
		body := res.Body
		g.Track(res, StreamOptions{Kind: Watch})
		if res.Body != body || r.Len() != 0 {
			t.Errorf("%T is a stream", body)
		}
	}
}

// STREAM-2: watches first, upgraded connections later, Wait for all.
func TestEndKindsAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		if err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		var copies sync.WaitGroup
		for range 3 {
			g := r.NewGroup()
			for _, res := range []*http.Response{
				response(newNetworkBody(), "application/json"), response(newNetworkBody(), "application/json"), switched(newConn(), "SPDY/3.1"), switched(newConn(), "websocket"),
			} {
				g.Track(res, StreamOptions{Kind: Watch})
				copies.Go(func() { io.Copy(io.Discard, res.Body); res.Body.Close() })
			}
		}
		r.EndKinds(Watch)
		synctest.Wait()
		if r.Len() != 6 {
			t.Errorf("%d streams are open after the watches ended", r.Len())
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		start := time.Now()
		r.EndKinds(Upgrade, WebSocket)
		if err := r.Wait(t.Context()); err != nil || time.Since(start) > 5*time.Second {
			t.Errorf("Wait: %v after %s", err, time.Since(start))
		}
		copies.Wait()
	})
}

// STREAM-1: one cluster's end touches no stream of another.
func TestGroupsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		a, b := r.NewGroup(), r.NewGroup()
		body := newNetworkBody()
		resA, resB := response(newNetworkBody(), "application/json"), response(body, "application/json")
		a.Track(resA, StreamOptions{Kind: Watch})
		b.Track(resB, StreamOptions{Kind: Watch})
		a.End(0)
		if _, err := io.ReadAll(resA.Body); err != nil {
			t.Error(err)
		}
		go func() { io.WriteString(body.send, "still here\n"); body.send.Close() }()
		if got, err := io.ReadAll(resB.Body); string(got) != "still here\n" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// Many begin, end and leave at once; -race looks on.
func TestRegistryConcurrently(t *testing.T) {
	r := NewRegistry()
	var all sync.WaitGroup
	for i := range 20 {
		g := r.NewGroup()
		for j := range 20 {
			all.Go(func() {
				body := newNetworkBody()
				res := response(body, "application/json")
				g.Track(res, StreamOptions{Kind: Kind(j % 2)})
				go func() { io.WriteString(body.send, "x\n"); body.send.Close() }()
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				body.Close()
			})
		}
		all.Go(func() {
			if i%2 == 0 {
				g.End(0)
			}
			r.Len()
			g.Len()
		})
	}
	all.Wait()
	if err := r.Wait(t.Context()); err != nil || r.Len() != 0 {
		t.Errorf("Wait: %v, %d open", err, r.Len())
	}
}

// The same over real connections: a watch that waits for the network ends
// cleanly with HTTP/1.1 and HTTP/2, and the other streams of the connection
// go on.
func TestWatchEndsOnTheNetwork(t *testing.T) {
	for name, h1 := range map[string]bool{"HTTP/1.1": true, "HTTP/2": false} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, h1, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, "{}\n")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
			p := pair(t, s.config)
			r := NewRegistry()
			ended, other := r.NewGroup(), r.NewGroup()
			open := func(g *Group) (*http.Response, *bufio.Reader) {
				res, err := p.RoundTrip(request(t, s.config, "GET", "/api/v1/pods", nil))
				if err != nil {
					t.Fatal(err)
				}
				g.Track(res, StreamOptions{Kind: Watch})
				lines := bufio.NewReader(res.Body)
				if line, err := lines.ReadString('\n'); line != "{}\n" || err != nil {
					t.Fatalf("first event: %q, %v", line, err)
				}
				return res, lines
			}
			res, lines := open(ended)
			stays, _ := open(other)
			time.AfterFunc(20*time.Millisecond, func() { ended.End(0) })
			within(t, 5*time.Second, "ending", func() {
				if b, err := io.ReadAll(lines); len(b) > 0 || err != nil {
					t.Errorf("end: %q, %v", b, err)
				}
			})
			res.Body.Close()
			if r.Len() != 1 {
				t.Errorf("%d streams are open", r.Len())
			}
			stays.Body.Close()
			if err := r.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

func BenchmarkTrackUnary(b *testing.B) {
	g := NewRegistry().NewGroup()
	res := &http.Response{StatusCode: 200, ContentLength: 100}
	p := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		res.Body = emptyBody{}
		g.Track(res, StreamOptions{Kind: Response})
		res.Body.Read(p)
		res.Body.Close()
	}
}

func BenchmarkTrackUnaryParallel(b *testing.B) {
	g := NewRegistry().NewGroup()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		res := &http.Response{StatusCode: 200, ContentLength: 100}
		p := make([]byte, 64)
		for pb.Next() {
			res.Body = emptyBody{}
			g.Track(res, StreamOptions{Kind: Response})
			res.Body.Read(p)
			res.Body.Close()
		}
	})
}

func BenchmarkWatchRead(b *testing.B) {
	event := []byte(strings.Repeat("x", 1000) + "\n")
	res := response(io.NopCloser(repeatReader{event}), "application/json")
	NewRegistry().NewGroup().Track(res, StreamOptions{Kind: Watch})
	p := make([]byte, 32<<10)
	b.ReportAllocs()
	for b.Loop() {
		res.Body.Read(p)
	}
}

type repeatReader struct{ event []byte }

func (r repeatReader) Read(p []byte) (int, error) { return copy(p, r.event), nil }

// STREAM-1: a request that has no response yet ends with its cluster too, when
// its grace has passed, and one that comes later ends at once.
func TestBegin(t *testing.T) {
	r := NewRegistry()
	g := r.NewGroup()
	ctx, done := g.Begin(t.Context(), "")
	answered, doneToo := g.Begin(t.Context(), "")
	doneToo()
	if g.Len() != 1 {
		t.Errorf("%d requests are followed, want 1", g.Len())
	}
	g.End(10 * time.Millisecond)
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the request did not end")
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ErrEnded) {
		t.Errorf("it ended with %v", cause)
	}
	if answered.Err() != nil {
		t.Error("a response that is there lost its request")
	}
	late, doneLate := g.Begin(t.Context(), "")
	if !errors.Is(context.Cause(late), ErrEnded) {
		t.Error("a request that came late goes on")
	}
	done()
	done()
	doneLate()
	if r.Len() != 0 {
		t.Errorf("%d requests are still followed", r.Len())
	}
}
