package serving

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newConnections()
		waited := func(d time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			start := time.Now()
			b.wait(ctx)
			return time.Since(start)
		}
		if d := waited(time.Minute); d != 0 {
			t.Errorf("waited %s for no connection", d)
		}
		var conns [3]net.Conn
		for n := range conns {
			conns[n], _ = net.Pipe()
			b.Observe(conns[n], http.StateNew)
			b.Observe(conns[n], http.StateActive)
			b.Observe(conns[n], http.StateIdle)
		}
		if d := waited(time.Minute); d != time.Minute {
			t.Errorf("waited %s for three that are open", d)
		}
		b.Observe(conns[0], http.StateHijacked)
		go func() {
			time.Sleep(time.Second)
			b.Observe(conns[1], http.StateClosed)
			b.Observe(conns[1], http.StateClosed)
			time.Sleep(time.Second)
			b.Observe(conns[2], http.StateClosed)
		}()
		if d := waited(time.Minute); d != 2*time.Second {
			t.Errorf("waited %s, want until the last one is closed", d)
		}
		if d := waited(time.Minute); d != 0 {
			t.Errorf("waited %s after the last one", d)
		}
	})
}
