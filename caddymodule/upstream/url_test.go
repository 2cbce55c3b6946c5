package upstream

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// URL-3, URL-01: the request line that the apiserver reads, over both
// protocols.
func TestRequestLine(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	record := func(line string) { mu.Lock(); lines = append(lines, line); mu.Unlock() }
	h1 := raw(t, nil, func(conn *tls.Conn) {
		head, _ := readHead(conn)
		line, _, _ := strings.Cut(head, "\r\n")
		record(line)
		io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	h2 := raw(t, []string{"h2"}, func(conn *tls.Conn) { serveH2Path(conn, record) })

	tests := []struct {
		name, base, rest, query string
		want                    string // the target in both protocols
		h1                      string // in HTTP/1.1, where it differs
	}{
		{name: "plain", rest: "/api/v1/pods", query: "limit=1", want: "/api/v1/pods?limit=1"},
		{name: "base path", base: "/k8s/c-1", rest: "/api/v1/pods", query: "limit=1", want: "/k8s/c-1/api/v1/pods?limit=1"},
		{name: "root", rest: "/", want: "/"},
		{name: "base path and root", base: "/k8s", rest: "/", want: "/k8s/"},
		{name: "escaped slash", rest: "/a%2Fb%2fc", want: "/a%2Fb%2fc"},
		{name: "needless escapes", rest: "/%61pi/%7Ex", want: "/%61pi/%7Ex"},
		{name: "what net/url escapes", rest: `/a"<>^{|}b`, want: `/a"<>^{|}b`},
		{name: "UTF-8", rest: "/é", want: "/é"},
		{name: "mixed", rest: "/é%2F^", want: "/é%2F^"},
		{name: "sub-delimiters", rest: "/a;b=c,d:e@f!$&'()*+", want: "/a;b=c,d:e@f!$&'()*+"},
		{name: "hash", rest: "/a#b", want: "/a#b"},
		{name: "empty segments", rest: "//evil.example.test/x", want: "//evil.example.test/x"},
		{name: "empty segments behind a base path", base: "/k8s", rest: "//x", want: "/k8s//x"},
		{
			name: "empty segments and odd characters", rest: "//evil.example.test/^", want: "//evil.example.test/^",
			h1: "https://" + serverName + ":6443//evil.example.test/^",
		},
		{name: "query untouched", rest: "/x", query: "a=%zz&b=^é;c&&d=//", want: "/x?a=%zz&b=^é;c&&d=//"},
		{name: "space would end the request line", rest: "/a b HTTP/1.1", want: "/a%20b%20HTTP/1.1"},
		{name: "space in the query", rest: "/x", query: "a b HTTP/1.1", want: "/x?a%20b%20HTTP/1.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for proto, c := range map[string]Config{"h1": h1, "h2": h2} {
				lines = nil
				target := c.Target
				target.BasePath = tt.base
				r := request(t, c, "GET", "/", nil)
				r.URL = &url.URL{RawQuery: tt.query}
				SetURL(r, target, tt.rest)
				do(t, pair(t, c), r)
				want := tt.want
				if proto == "h1" {
					if tt.h1 != "" {
						want = tt.h1
					}
					want = "GET " + want + " HTTP/1.1"
				}
				mu.Lock()
				if len(lines) != 1 || lines[0] != want {
					t.Errorf("%s: %q, want %q", proto, lines, want)
				}
				mu.Unlock()
			}
		})
	}
}

// serveH2Path answers requests with 204 and records their :path.
func serveH2Path(conn *tls.Conn, record func(string)) {
	f := newH2Conn(conn)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			record(h.PseudoValue("path"))
			f.respond(h.StreamID, "204", true)
		}
	}
}

// h2Conn is an HTTP/2 connection of a test that speaks frames.
type h2Conn struct {
	*http2.Framer
	buf strings.Builder
	enc *hpack.Encoder
}

func newH2Conn(conn *tls.Conn) *h2Conn {
	io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
	c := &h2Conn{Framer: http2.NewFramer(conn, conn)}
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.enc = hpack.NewEncoder(&c.buf)
	c.WriteSettings()
	return c
}

func (c *h2Conn) respond(stream uint32, status string, end bool) {
	c.buf.Reset()
	c.enc.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: []byte(c.buf.String()), EndStream: end, EndHeaders: true,
	})
}

// URL-3 for any path that a client can get into a request line.
func FuzzSetURL(f *testing.F) {
	for _, rest := range []string{"/", "/api/v1", "//x/y", "/a%2Fb", "/é", "/^", "//^", "/a#b", "/%", "/ a", "/*"} {
		f.Add("", rest)
		f.Add("/base", rest)
	}
	f.Fuzz(func(t *testing.T, base, rest string) {
		if !strings.HasPrefix(rest, "/") || base != "" && !strings.HasPrefix(base, "/") || strings.Contains(base+rest, "?") {
			return
		}
		target := k8swatch.Target{Host: "up.example.test", BasePath: base}
		r := &http.Request{URL: &url.URL{RawQuery: "a=b"}}
		SetURL(r, target, rest)
		got := r.URL.RequestURI()
		if hasSpaceOrControl(base + rest) {
			if hasSpaceOrControl(got) {
				t.Fatalf("%q breaks a request line", got)
			}
			return
		}
		want := base + rest + "?a=b"
		if got != want && got != "https://up.example.test"+want {
			t.Fatalf("request line %q, want %q", got, want)
		}
		if r.URL.Host != target.Host || r.Host != target.Host {
			t.Fatal(fmt.Sprint("another host: ", r.URL.Host))
		}
	})
}
