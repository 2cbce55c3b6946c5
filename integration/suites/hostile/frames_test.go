package hostile

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// frames writes the answer to one HTTP/2 request.
type frames func(framer *http2.Framer, stream uint32)

// withFrames runs f while the upstream of a cluster answers by frames.
func withFrames(t *testing.T, cluster string, answer frames, f func()) {
	t.Helper()
	up := shared.ups[cluster]
	// The trust check of the cluster is done: the next connection serves frames.
	do(t, shared.px, h1, call{cluster: cluster, path: "/api"}.asAlice())
	reconnect := func(hook func(*rawserver.RawConn) bool) {
		up.Suspend()
		up.HandleConn(hook)
		if err := up.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	reconnect(func(c *rawserver.RawConn) bool {
		if c.ConnectionState().NegotiatedProtocol != "h2" {
			return false
		}
		serveFrames(c, answer)
		return true
	})
	defer reconnect(nil)
	f()
}

// serveFrames answers every request of an HTTP/2 connection.
func serveFrames(c *rawserver.RawConn, answer frames) {
	framer, err := c.Framer()
	if err != nil {
		return
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = framer.WritePing(true, f.Data)
			}
		case *http2.HeadersFrame:
			answer(framer, f.StreamID)
		}
	}
}

// fields is a header block of names and values in turn.
func fields(namesAndValues ...string) []byte {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(namesAndValues); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: namesAndValues[i+1]})
	}
	return block.Bytes()
}

// RELAY-4: a 101 over HTTP/2, where it does not exist (RFC 9113, section 8.6).
func TestRELAY4UnaskedSwitchOverHTTP2(t *testing.T) {
	switching := func(framer *http2.Framer, stream uint32) {
		block := fields(":status", "101", "upgrade", "websocket")
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true})
		_ = framer.WriteData(stream, true, []byte(forging))
	}
	for _, cluster := range []string{fpH2, ptH2} {
		withFrames(t, cluster, switching, func() {
			bothProtocols(t, func(t *testing.T, protocol string) {
				a := do(t, shared.px, protocol, call{cluster: cluster, path: "/api"}.asAlice())
				wantStatus(t, a, http.StatusBadGateway, "")
				if strings.Contains(a.Body, forging) {
					t.Errorf("%s", a.Body)
				}
			})
		})
	}
}

// badStatuses are header blocks of HTTP/2 without a status that HTTP knows.
var badStatuses = [][]string{
	{":status", "0"},
	{":status", "-5"},
	{":status", "042"},
	{":status", "600"},
	{":status", "99999"},
	{":status", "99999999999999999999"},
	{":status", "2e2"},
	{":status", ""},
	{":status", "200", ":status", "200"},
	{":status", "200", ":status", "0"},
	{"content-type", "text/plain"},
	{},
}

// openAnswer answers with a header and the beginning of a body that never ends.
func openAnswer(header *atomic.Pointer[[]string]) frames {
	return func(framer *http2.Framer, stream uint32) {
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: fields(*header.Load()...), EndHeaders: true})
		_ = framer.WriteData(stream, false, make([]byte, 16<<10))
	}
}

// RELAY-4: over HTTP/2 what is no status is a 502 that is audited and counted, and
// leaves neither a stream nor memory behind.
func TestRELAY4InvalidStatusOverHTTP2(t *testing.T) {
	var header atomic.Pointer[[]string]
	for _, cluster := range []string{fpH2, ptH2} {
		counter := fmt.Sprintf(`proxyauth_requests_total{cluster=%q,code="502",namespace=%q}`, cluster, ns)
		header.Store(&badStatuses[0])
		withFrames(t, cluster, openAnswer(&header), func() {
			bothProtocols(t, func(t *testing.T, protocol string) {
				for i, bad := range badStatuses {
					header.Store(&bad)
					before := shared.px.MustCounter(t, counter)
					path := fmt.Sprintf("/api/bad-frames-%s-%s-%d", protocol, cluster, i)
					a := do(t, shared.px, protocol, call{cluster: cluster, path: path}.asAlice())
					wantStatus(t, a, http.StatusBadGateway, "")
					if e := audited(t, shared.px, path); fmt.Sprint(e["response_status"]) != "502" {
						t.Errorf("%q: audit line %v", bad, e)
					}
					if counted := shared.px.MustCounter(t, counter) - before; counted != 1 {
						t.Errorf("%q: counted %d times", bad, counted)
					}
				}
			})
			if cluster == fpH2 {
				t.Run("a thousand times", func(t *testing.T) { thousandBadStatuses(t, cluster, &header) })
			}
		})
	}
}

func thousandBadStatuses(t *testing.T, cluster string, header *atomic.Pointer[[]string]) {
	send := func(connections int) {
		var wg sync.WaitGroup
		for i := range connections {
			conn := rawclient.MustDialH2(t, shared.px.Host, shared.px.CA.Pool())
			defer conn.Close()
			c := call{cluster: cluster, path: "/api"}.asAlice()
			wg.Go(func() {
				for j := range 100 {
					header.Store(&badStatuses[(i+j)%len(badStatuses)])
					if code, err := codeOf(conn, c.h2(shared.px)); err != nil || code != http.StatusBadGateway {
						t.Errorf("%d, %v", code, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	send(1) // pools and caches are filled
	goroutines, heap := held(t, shared.px)
	send(10)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		nowGoroutines, nowHeap := held(t, shared.px)
		if nowGoroutines <= goroutines+20 && nowHeap <= heap+8<<20 {
			t.Logf("%d goroutines and %d KiB before, %d and %d KiB after", goroutines, heap>>10, nowGoroutines, nowHeap>>10)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines and %d KiB before, %d and %d KiB after", goroutines, heap>>10, nowGoroutines, nowHeap>>10)
		}
	}
}

// codeOf sends a request and reads its answer.
func codeOf(conn *rawclient.H2, request []rawclient.Field) (int, error) {
	s, err := conn.Open(request, true)
	if err != nil {
		return 0, err
	}
	code, _, err := s.Head()
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, s)
	return code, err
}

var (
	goroutineTotal = regexp.MustCompile(`goroutine profile: total (\d+)`)
	heapInUse      = regexp.MustCompile(`# HeapAlloc = (\d+)`)
	stackInUse     = regexp.MustCompile(`# Stack = (\d+)`)
)

// held is how many goroutines a proxy has, and how many bytes of heap and stacks
// after a collection.
func held(t *testing.T, px *proxy.Proxy) (goroutines, bytes int) {
	t.Helper()
	read := func(profile string) string {
		code, text, err := px.AdminDo(t.Context(), http.MethodGet, "/debug/pprof/"+profile, nil)
		if err != nil || code != http.StatusOK {
			t.Fatalf("%d, %v", code, err)
		}
		return text
	}
	number := func(of *regexp.Regexp, text string) int {
		found := of.FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no %v in the profile", of)
		}
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	memory := read("heap?gc=1&debug=1")
	return number(goroutineTotal, read("goroutine?debug=1")), number(heapInUse, memory) + number(stackInUse, memory)
}
