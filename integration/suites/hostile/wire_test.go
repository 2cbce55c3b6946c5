package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// STR-01 as it is told: nothing for 5 s after the header, then an event of 60 bytes
// and one each second, by any content type and protocol. The header and the events
// come within 200 ms; on a busy machine some of them may take two seconds.
func TestSTR01(t *testing.T) {
	const (
		prompt, busy = 200 * time.Millisecond, 2 * time.Second
		silence      = 5 * time.Second
		events       = 5
	)
	kinds := map[string]struct{ path, contentType string }{
		"json":     {"/api/v1/pods?watch=true&kind=json", "application/json"},
		"protobuf": {"/api/v1/pods?watch=true&kind=protobuf", "application/vnd.kubernetes.protobuf;stream=watch"},
		"text":     {"/api/v1/namespaces/x/pods/y/log?follow=true&kind=text", "text/plain"},
	}
	event := []byte(strings.Repeat("e", 59) + "\n")
	var mu sync.Mutex
	wrote := map[string]time.Time{} // by protocol, kind and number
	for _, up := range shared.ups {
		up.Handle(func(rw *rawserver.Writer, r *rawserver.Request) {
			_, key, _ := strings.Cut(r.Target, "&kind=")
			kind, _, _ := strings.Cut(key, "&")
			write := func(n int, do func()) {
				mu.Lock()
				wrote[fmt.Sprint(key, n)] = time.Now()
				mu.Unlock()
				do()
			}
			write(-1, func() {
				rw.Header(http.StatusOK, rawserver.Field{Name: "Content-Type", Value: kinds[kind].contentType})
			})
			for n := range events {
				time.Sleep(max(time.Second, silence*time.Duration(1-n)))
				write(n, func() { rw.Write(event) })
			}
		})
		defer up.Handle(nil)
	}
	var all sync.WaitGroup
	for cluster := range shared.ups {
		for _, protocol := range []string{h1, h2} {
			for kind, k := range kinds {
				client := shared.px.Client(protocol)
				defer client.CloseIdleConnections()
				all.Go(func() {
					key := strings.Join([]string{kind, protocol, cluster}, "&")
					var took []time.Duration
					took, err := timeEvents(t.Context(), client, shared.px.ClusterURL(ns, cluster)+strings.Replace(k.path, "&kind="+kind, "&kind="+key, 1),
						k.contentType, event, func(n int) time.Duration {
							mu.Lock()
							defer mu.Unlock()
							return time.Since(wrote[fmt.Sprint(key, n)])
						})
					if err != nil || len(took) != 1+events {
						t.Errorf("%s: %v, %v", key, took, err)
						return
					}
					slices.Sort(took)
					if took[len(took)/2] > prompt || took[len(took)-1] > busy {
						t.Errorf("%s: header and events took %v", key, took)
					}
				})
			}
		}
	}
	all.Wait()
}

// timeEvents opens a stream and says how long after it was written came the header
// (number -1), and each event.
func timeEvents(ctx context.Context, client *http.Client, url, contentType string, event []byte, since func(n int) time.Duration) (took []time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token(nil))
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	took = append(took, since(-1))
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != contentType {
		return nil, fmt.Errorf("%s, %q", resp.Status, got)
	}
	got := make([]byte, len(event))
	for n := 0; ; n++ {
		if _, err := io.ReadFull(resp.Body, got); err == io.EOF {
			return took, nil
		} else if err != nil || !bytes.Equal(got, event) {
			return took, fmt.Errorf("%q: %w", got, err)
		}
		took = append(took, since(n))
	}
}

// RELAY-6: trailers of an answer pass, announced or not, but for those that would
// act on the whole origin (ID-5).
func TestRELAY6Trailers(t *testing.T) {
	everyWay(t, shared.px, func(t *testing.T, w way) {
		for name, header := range map[string][]rawserver.Field{
			"announced":   {{Name: "Trailer", Value: "X-Checksum, Set-Cookie"}},
			"unannounced": nil,
		} {
			t.Run(name, func(t *testing.T) {
				w.up.Handle(func(rw *rawserver.Writer, _ *rawserver.Request) {
					rw.Header(http.StatusOK, header...)
					rw.Write([]byte("hello"))
					rw.Trailers(rawserver.Field{Name: "X-Checksum", Value: "1"}, rawserver.Field{Name: "X-Checksum", Value: "2"}, rawserver.Field{Name: "Set-Cookie", Value: "a=b"})
				})
				defer w.up.Handle(nil)
				_, trailer, content := fetch(t, w, "/api")
				maps.DeleteFunc(trailer, func(_ string, values []string) bool { return len(values) == 0 }) // announced alone
				if diff := cmp.Diff(http.Header{"X-Checksum": {"1", "2"}}, trailer); diff != "" || content != "hello" {
					t.Errorf("%q, trailers (-want +got):\n%s", content, diff)
				}
			})
		}
	})
}

// fetch gets a path with a client that reads trailers.
func fetch(t *testing.T, w way, path string, lines ...string) (header, trailer http.Header, content string) {
	t.Helper()
	client := w.px.Client(w.protocol)
	defer client.CloseIdleConnections()
	client.Transport.(*http.Transport).DisableCompression = true
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.px.ClusterURL(ns, w.cluster)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range append(lines, "Authorization: Bearer "+token(nil)) {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	return resp.Header, resp.Trailer, string(b)
}

// RELAY-6: what is compressed passes byte by byte, and the proxy neither asks for
// compression nor drops the client's wish.
func TestRELAY6Encodings(t *testing.T) {
	var compressed bytes.Buffer
	zip := gzip.NewWriter(&compressed)
	_, _ = zip.Write([]byte(strings.Repeat("pods ", 1000)))
	_ = zip.Close()
	everyWay(t, shared.px, func(t *testing.T, w way) {
		w.up.Handle(func(rw *rawserver.Writer, _ *rawserver.Request) {
			rw.Respond(http.StatusOK, compressed.Bytes(), rawserver.Field{Name: "Content-Encoding", Value: "gzip"}, rawserver.Field{Name: "Vary", Value: "Accept-Encoding"})
		})
		defer w.up.Handle(nil)
		for _, wish := range [][]string{nil, {"gzip"}, {"gzip;q=0.5, zstd", "br"}, {"identity"}} {
			w.up.Reset()
			var lines []string
			for _, value := range wish {
				lines = append(lines, "Accept-Encoding: "+value)
			}
			header, _, content := fetch(t, w, "/api", lines...)
			if got := w.up.Only(t).Lines("Accept-Encoding"); !slices.Equal(got, wish) {
				t.Errorf("Accept-Encoding at the upstream %q, want %q", got, wish)
			}
			if content != compressed.String() || header.Get("Content-Encoding") != "gzip" || header.Get("Vary") != "Accept-Encoding" || header.Get("Content-Length") != fmt.Sprint(compressed.Len()) {
				t.Errorf("asked for %q: %d bytes, %v", wish, len(content), header)
			}
		}
	})
}

// RELAY-2: an apiserver may end its sending half first; what the client sends
// after that still arrives.
func TestRELAY2ApiserverEndsFirst(t *testing.T) {
	for cluster, up := range shared.ups {
		t.Run(cluster, func(t *testing.T) {
			arrived := make(chan string, 1)
			up.Handle(func(rw *rawserver.Writer, _ *rawserver.Request) {
				both, err := rw.Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nlast word")
				if err := rw.CloseWrite(); err != nil {
					t.Error(err)
				}
				arrived <- readAll(both)
			})
			defer up.Handle(nil)
			conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
			if a := conn.Do(t, call{cluster: cluster, path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: SPDY/3.1").h1(shared.px)); a.Code != http.StatusSwitchingProtocols {
				t.Fatalf("%+v", a)
			}
			_ = conn.SetReadDeadline(time.Now().Add(rawclient.Timeout))
			if got := readAll(conn.R); got != "last word" {
				t.Errorf("the client got %q", got)
			}
			if err := conn.Send([]byte("late answer")); err != nil {
				t.Fatal(err)
			}
			_ = conn.CloseWrite()
			select {
			case got := <-arrived:
				if got != "late answer" {
					t.Errorf("the apiserver got %q", got)
				}
			case <-time.After(patience):
				t.Error("the upgraded connection does not end")
			}
		})
	}
}

// RELAY-2: an apiserver closes a stream behind its last bytes. A client that reads
// slowly gets all of them, though what it sends meanwhile, such as the pings of
// kubectl, cannot be delivered any more.
func TestRELAY2SlowReaderGetsTheEnd(t *testing.T) {
	// More than the client has room for, less than the proxy has.
	last := strings.Repeat("last words. ", 8_000)
	for cluster, up := range shared.ups {
		t.Run(cluster, func(t *testing.T) {
			up.Handle(func(rw *rawserver.Writer, _ *rawserver.Request) {
				both, err := rw.Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"+last)
			})
			defer up.Handle(nil)
			conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
			smallWindow(conn.Conn, 4<<10)
			if a := conn.Do(t, call{cluster: cluster, path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: SPDY/3.1").h1(shared.px)); a.Code != http.StatusSwitchingProtocols {
				t.Fatalf("%+v", a)
			}
			// By now the apiserver has closed its end, or does so in a moment.
			time.Sleep(50 * time.Millisecond)
			for range 20 {
				if err := conn.Send([]byte("ping")); err != nil {
					t.Fatalf("the proxy has closed the connection: %v", err)
				}
				time.Sleep(5 * time.Millisecond)
			}
			_ = conn.SetReadDeadline(time.Now().Add(rawclient.Timeout))
			got, err := io.ReadAll(conn.R)
			if string(got) != last || err != nil {
				t.Errorf("%d bytes of %d, %v", len(got), len(last), err)
			}
		})
	}
}
