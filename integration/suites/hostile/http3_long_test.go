//go:build long

package hostile

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// What docs/streams.md says of HTTP/3: Caddy ends a connection that was quiet for
// 30 s, and after a reload all connections at the end of the grace period. When this
// test fails, a limit has gone, and the page is out of date.
func TestLongHTTP3EndsStreams(t *testing.T) {
	px := startProxy(t, proxy.Options{Global: http3(), GracePeriod: 2 * time.Second}, nil)
	up := shared.ups[fpH2]
	ended := make(chan struct{})
	defer close(ended)
	up.Handle(func(rw *rawserver.Writer, _ *rawserver.Request) {
		rw.Header(http.StatusOK)
		<-ended
	})
	defer up.Handle(nil)
	watch := func(t *testing.T) *rawclient.H3Stream {
		t.Helper()
		s, err := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{}).Open(call{cluster: fpH2, path: "/api/v1/pods?watch=true"}.asAlice().h2(px), true)
		if err != nil {
			t.Fatal(err)
		}
		if code, _, err := s.Head(); err != nil || code != http.StatusOK {
			t.Fatalf("%d, %v", code, err)
		}
		return s
	}
	t.Run("quiet", func(t *testing.T) {
		s, start := watch(t), time.Now()
		s.Patience = time.Minute
		_, err := io.ReadFull(s, make([]byte, 1))
		if took := time.Since(start); err == nil || took < 25*time.Second || took > 40*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
	t.Run("reload", func(t *testing.T) {
		s := watch(t)
		if err := px.Reload(t.Context(), func(o *proxy.Options) { o.Settings = "probe_interval 50s" }); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := io.ReadFull(s, make([]byte, 1))
		if took := time.Since(start); err == nil || took > 10*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}
