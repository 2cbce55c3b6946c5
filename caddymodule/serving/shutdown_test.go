package serving

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
)

// STREAM-2: watches end when the listeners close, upgraded connections when the
// grace period is over, and the end of the process waits for both.
func TestExitEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay, grace = 2 * time.Second, 10 * time.Second
		p := newTestProcess()
		group := p.streams.registry.NewGroup()
		open := func(code int, kind upstream.Kind) func() time.Duration {
			r, w := io.Pipe()
			res := &http.Response{StatusCode: code, ContentLength: -1, Header: http.Header{}, Body: pipe{r, w}}
			group.Track(res, upstream.StreamOptions{Kind: kind})
			start, ended := time.Now(), make(chan time.Duration, 1)
			go func() {
				_, err := io.Copy(io.Discard, res.Body)
				if err != nil && !errors.Is(err, upstream.ErrEnded) {
					t.Error(err)
				}
				ended <- time.Since(start)
				res.Body.Close()
			}()
			return func() time.Duration { return <-ended }
		}
		watch := open(http.StatusOK, upstream.Watch)
		upgraded := open(http.StatusSwitchingProtocols, upstream.Upgrade)
		rt := newTestRuntime(p)
		if rt.Stopping() {
			t.Error("stopping already")
		}
		start := time.Now()
		p.BeginExit(delay, grace)
		p.BeginExit(0, 0) // only the first counts
		if !rt.Stopping() {
			t.Error("not stopping")
		}
		p.FinishExit(t.Context())
		if d := watch(); d != delay {
			t.Errorf("the watch ended after %v", d)
		}
		// A client may take a moment to leave when it is told to.
		if d := upgraded(); d < delay+grace || d > delay+grace+exitWait {
			t.Errorf("the upgraded connection ended after %v", d)
		}
		if d := time.Since(start); d < delay+grace || d > delay+grace+exitWait {
			t.Errorf("the process ended after %v", d)
		}
	})
}

type pipe struct {
	*io.PipeReader
	*io.PipeWriter
}

func (p pipe) Close() error { return errors.Join(p.PipeReader.Close(), p.PipeWriter.Close()) }
func (p pipe) CloseWithError(err error) error {
	return errors.Join(p.PipeReader.CloseWithError(err), p.PipeWriter.CloseWithError(err))
}
