package upstream

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// cuts counts how often a client is cut off.
type cuts struct{ atomic.Int64 }

func (c *cuts) Cut() { c.Add(1) }

// STREAM-1: a client that does not read the end of its stream is cut off in time,
// and one that does is not.
func TestUnreadStreamIsCut(t *testing.T) {
	const grace = 4 * time.Second // of ordinary responses
	for _, tt := range []struct {
		name  string
		make  func() *http.Response
		kind  Kind
		after time.Duration
	}{
		{"watch", func() *http.Response { return response(newNetworkBody(), "application/json") }, Watch, unreadGrace},
		{"SPDY", func() *http.Response { return switched(newConn(), "SPDY/3.1") }, Upgrade, unreadGrace},
		{"WebSocket", func() *http.Response { return switched(newConn(), "websocket") }, WebSocket, unreadGrace},
		{"response", func() *http.Response { return response(newNetworkBody(), "application/json") }, Response, grace + unansweredGrace},
	} {
		for _, reads := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var c cuts
					g := NewRegistry().NewGroup()
					res := tt.make()
					g.Track(res, StreamOptions{Kind: tt.kind, Client: &c})
					if reads {
						go func() {
							_, _ = io.Copy(io.Discard, res.Body)
							res.Body.Close()
						}()
					}
					g.End(grace)
					time.Sleep(tt.after - time.Millisecond)
					if n := c.Load(); n != 0 {
						t.Errorf("cut %d times, too early", n)
					}
					time.Sleep(time.Minute)
					want := int64(1)
					if reads {
						want = 0
					}
					if n := c.Load(); n != want {
						t.Errorf("reading %t: cut %d times, want %d", reads, n, want)
					}
					res.Body.Close()
				})
			})
		}
	}
}
