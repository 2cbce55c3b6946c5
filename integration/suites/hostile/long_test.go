//go:build long

package hostile

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// RELAY-7: a download of 500 MB at 4 Mbit/s and one of 125 MB at 1 Mbit/s arrive
// whole, over each protocol, while their caller has as many answers as may be that
// it does not read; so does a watch of the same link. It takes 17 minutes.
func TestLongRELAY7SlowDownloads(t *testing.T) {
	const size, during = 500_000_000, 1000 * time.Second
	px := startProxy(t, proxy.Options{LogLevel: "INFO"}, nil)
	up := shared.ups[fpH2]
	up.Handle(func(w *rawserver.Writer, r *rawserver.Request) {
		switch r.Target {
		case "/large":
			rawserver.Big(size)(w, r)
		case "/smaller":
			rawserver.Big(size/4)(w, r)
		default:
			endless(w, r)
		}
	})
	defer up.Handle(nil)
	var wg sync.WaitGroup
	for path, rate := range map[string]int{"/large": 4 * megabit, "/smaller": megabit, "/api/v1/pods?watch=true": megabit} {
		for _, protocol := range []string{h1, h2} {
			stream := mustOpen(t, slowClient(t, px, protocol), px, path, token(nil))
			wg.Go(func() {
				n, err := slowly(t.Context(), stream, rate, during-10*time.Second)
				if err != nil {
					t.Errorf("%s over %s ended after %d bytes: %v", path, protocol, n, err)
					return
				}
				if path == "/api/v1/pods?watch=true" {
					return
				}
				rest, err := io.Copy(io.Discard, stream)
				if want := int64(rate) * size / (4 * megabit); err != nil || n+rest != want {
					t.Errorf("%s over %s: %d bytes of %d came, %v", path, protocol, n+rest, want, err)
				}
			})
		}
	}
	for range 32 {
		unreadH1(t, px, call{cluster: fpH2, path: "/api/big"}.asAlice())
	}
	wg.Wait()
}

// RELAY-7: a client that takes no refusals has its connection cut after ten seconds
// of them, and up to five of TLS saying goodbye.
func TestLongRELAY7UnreadRefusals(t *testing.T) {
	px := startProxy(t, proxy.Options{LogLevel: "INFO"}, nil)
	conn := rawclient.MustDial(t, px.Host, px.CA.Pool())
	smallWindow(conn.Conn, 4<<10)
	many := bytes.Repeat(call{cluster: fpH2, path: "/api/unread-refusals"}.h1(px), 100)
	_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
	var err error
	for err == nil {
		_, err = conn.Write(many)
	}
	ended := time.Now()
	lines, logErr := px.Audit()
	if logErr != nil {
		t.Fatal(logErr)
	}
	// A line is written with the headers of an answer.
	var last time.Time
	for _, line := range lines {
		if line.Text("path") == "/api/unread-refusals" {
			seconds, _ := line["ts"].(float64)
			last = time.UnixMicro(int64(seconds * 1e6))
		}
	}
	if stuck := ended.Sub(last); last.IsZero() || stuck < 8*time.Second || stuck > 20*time.Second {
		t.Errorf("the last refusal was written at %v, and its connection cut %v later (%v)", last, stuck, err)
	}
}
