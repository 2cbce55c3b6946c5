package hostile

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// wantNothingForged fails when anything came upstream that is not a request of
// alice's, framed in one way, or that holds something forged.
func wantNothingForged(t *testing.T, w way, bearer string) {
	t.Helper()
	for _, r := range w.up.Requests() {
		wantAlice(t, w, r, bearer)
		text := r.Text()
		head, _, _ := strings.Cut(text, "\r\n\r\n")
		if strings.Contains(head, "f0rged") && len(r.Lines("X-Harmless")) == 0 {
			t.Errorf("forged bytes in the head at the upstream:\n%s", head)
		}
		if strings.Contains(r.Target, "smuggled") {
			t.Errorf("a smuggled request: %v", r)
		}
		if n, m := len(r.Lines("Content-Length")), len(r.Lines("Transfer-Encoding")); n+m > 1 {
			t.Errorf("%d lengths and %d encodings at the upstream:\n%s", n, m, head)
		}
	}
}

// wantInStep sends a further request, which must be the one that comes out of
// the shared connection, and looks at all that came.
func (w way) wantInStep(t *testing.T, path, bearer string) {
	t.Helper()
	if a := do(t, w.px, w.protocol, call{cluster: w.cluster, path: path + "/after"}.bearer(bearer)); a.Code != http.StatusOK {
		t.Errorf("the next request: %d %s", a.Code, a.Body)
	}
	targets := map[string]int{}
	for _, r := range w.up.Requests() {
		targets[r.Target]++
	}
	if targets[path+"/after"] != 1 || targets[path] > 1 {
		t.Errorf("requests at the upstream: %v", targets)
	}
	wantNothingForged(t, w, bearer)
}

// Request smuggling over HTTP/1.1: whatever the framing claims, nothing but
// one request of the caller's comes out, and the shared connection to the
// apiserver is in step afterwards.
func TestSmugglingHTTP1(t *testing.T) {
	inner := func(cluster string) string {
		return "GET /clusters/" + ns + "/" + cluster + "/smuggled HTTP/1.1\r\nHost: x\r\nX-Remote-User: f0rged\r\n\r\n"
	}
	// heads are header lines, written as they are, with the body behind them.
	type message struct{ lines, body string }
	messages := map[string]func(cluster string) message{
		"TE and CL": func(c string) message {
			return message{"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + inner(c)}
		},
		"CL and TE": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\nContent-Length: 500\r\n", "0\r\n\r\n" + inner(c)}
		},
		"CL zero and TE": func(c string) message {
			return message{"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"}
		},
		"two lengths":                 func(c string) message { return message{"Content-Length: 0\r\nContent-Length: 500\r\n", inner(c)} },
		"two equal lengths":           func(c string) message { return message{"Content-Length: 5\r\nContent-Length: 5\r\n", "hello"} },
		"a list of lengths":           func(c string) message { return message{"Content-Length: 0, 500\r\n", inner(c)} },
		"a signed length":             func(c string) message { return message{"Content-Length: +500\r\n", inner(c)} },
		"a negative length":           func(c string) message { return message{"Content-Length: -1\r\n", inner(c)} },
		"a hex length":                func(c string) message { return message{"Content-Length: 0x10\r\n", inner(c)} },
		"a huge length":               func(c string) message { return message{"Content-Length: 99999999999999999999\r\n", inner(c)} },
		"an empty length":             func(c string) message { return message{"Content-Length:\r\n", inner(c)} },
		"a length with a blank":       func(c string) message { return message{"Content-Length: 1 0\r\n", inner(c)} },
		"a length in capitals, twice": func(c string) message { return message{"CONTENT-LENGTH: 0\r\ncontent-length: 500\r\n", inner(c)} },
		"TE twice": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n" + inner(c)}
		},
		"TE twice chunked": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + inner(c)}
		},
		"TE list": func(c string) message { return message{"Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n" + inner(c)} },
		"TE chunked, identity": func(c string) message {
			return message{"Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n" + inner(c)}
		},
		"TE unknown": func(c string) message {
			return message{"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n", "hello"}
		},
		"TE quoted":     func(c string) message { return message{"Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n" + inner(c)} },
		"TE with a tab": func(c string) message { return message{"Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n"} },
		"TE with a vertical tab": func(c string) message {
			return message{"Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n", "0\r\n\r\n" + inner(c)}
		},
		"TE with a blank before colon": func(c string) message {
			return message{"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n" + inner(c)}
		},
		"TE folded": func(c string) message {
			return message{"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n" + inner(c)}
		},
		"TE behind a bare CR": func(c string) message {
			return message{"X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n" + inner(c)}
		},
		"TE behind a bare LF": func(c string) message { return message{"X-A: b\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"} },
		"TE empty":            func(c string) message { return message{"Transfer-Encoding:\r\nContent-Length: 5\r\n", "hello"} },
		"underscores":         func(c string) message { return message{"Transfer_Encoding: chunked\r\nContent_Length: 500\r\n", ""} },
		"a GET with a body": func(c string) message {
			return message{"Content-Length: " + fmt.Sprint(len(inner(c))) + "\r\n", inner(c)}
		},
		"a chunk with an extension": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "5;a=b\r\nhello\r\n0\r\n\r\n"}
		},
		"an extension with a bare LF": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "5;\nhello\r\n0\r\n\r\n" + inner(c)}
		},
		"a chunk size with a blank": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "5 \r\nhello\r\n0\r\n\r\n" + inner(c)}
		},
		"a chunk size in hex style": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n" + inner(c)}
		},
		"a chunk size with underscore": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "1_0\r\nhello\r\n0\r\n\r\n" + inner(c)}
		},
		"a huge chunk size": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "ffffffffffffffff1\r\nhello\r\n0\r\n\r\n" + inner(c)}
		},
		"a negative chunk size": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "-5\r\nhello\r\n0\r\n\r\n" + inner(c)}
		},
		"a chunk too short": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "3\r\nhello\r\n0\r\n\r\n" + inner(c)}
		},
		"chunks with bare LF": func(c string) message { return message{"Transfer-Encoding: chunked\r\n", "5\nhello\n0\n\n"} },
		"bytes after the last chunk": func(c string) message {
			return message{"Transfer-Encoding: chunked\r\n", "0\r\nX-Remote-User: f0rged\r\n\r\n" + inner(c)}
		},
		"obs-fold": func(c string) message {
			return message{"X-Harmless: a\r\n X-Remote-User: f0rged\r\n\tX-Remote-Group: f0rged\r\n", ""}
		},
		"a folded first line": func(c string) message { return message{" X-Remote-User: f0rged\r\nX-Harmless: f0rged\r\n", ""} },
		"a bare LF": func(c string) message {
			return message{"X-A: b\nX-Remote-User: f0rged\nX-Remote-Group: f0rged\r\n", ""}
		},
		"a bare CR":                func(c string) message { return message{"X-A: b\rX-Remote-User: f0rged\r\n", ""} },
		"CR CR LF":                 func(c string) message { return message{"X-A: b\r\r\nX-Remote-User: f0rged\r\n", ""} },
		"a NUL":                    func(c string) message { return message{"X-A: b\x00X-Remote-User: f0rged\r\n", ""} },
		"a NUL in a name":          func(c string) message { return message{"X-Remote\x00-User: f0rged\r\n", ""} },
		"a blank before the colon": func(c string) message { return message{"X-Remote-User : f0rged\r\n", ""} },
		"a tab before the colon":   func(c string) message { return message{"X-Remote-User\t: f0rged\r\n", ""} },
		"a blank in the name":      func(c string) message { return message{"X-Remote User: f0rged\r\n", ""} },
		"no colon":                 func(c string) message { return message{"X-Remote-User\r\n", ""} },
		"no name":                  func(c string) message { return message{": f0rged\r\n", ""} },
		"a name of other bytes":    func(c string) message { return message{"X-Remote-Us\u00e9r: f0rged\r\n", ""} },
		"two Host lines":           func(c string) message { return message{"Host: f0rged\r\n", ""} },
		"an early end":             func(c string) message { return message{"\r\n" + inner(c), ""} },
		"an early end of bare LFs": func(c string) message { return message{"X-A: b\n\n" + inner(c), ""} },
	}
	for _, cluster := range []string{fpH1, fpH2} {
		up := shared.ups[cluster]
		w := way{px: shared.px, protocol: h1, cluster: cluster, up: up}
		for name, make := range messages {
			for _, method := range []string{"POST", "GET"} {
				t.Run(method+" "+name+" to "+cluster, func(t *testing.T) {
					up.Reset()
					bearer := scoped()
					m := make(cluster)
					// What a test before this one has broken off may come late.
					path := fmt.Sprintf("/api/%x", method+name)
					conn := rawclient.MustDial(t, w.px.Host, w.px.CA.Pool())
					request := method + " /clusters/" + ns + "/" + cluster + path + " HTTP/1.1\r\nHost: " + w.px.Host + "\r\nAuthorization: Bearer " + bearer + "\r\n" + m.lines + "\r\n" + m.body
					if err := conn.Send([]byte(request)); err != nil {
						t.Fatal(err)
					}
					// A request whose framing waits for more has no answer; the
					// end of what we send is no answer's reason to wait.
					_ = conn.SetReadDeadline(time.Now().Add(150 * time.Millisecond))
					first, _ := conn.R.Peek(1)
					_ = conn.SetReadDeadline(time.Now().Add(patience))
					if len(first) > 0 {
						if resp, err := http.ReadResponse(conn.R, &http.Request{Method: method}); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
						}
					}
					_ = conn.CloseWrite()
					answer, err := io.ReadAll(conn.R)
					if err != nil {
						t.Errorf("the connection hangs: %v", err)
					}
					if len(first) > 0 && strings.Contains(string(answer), `"t:alice"`) {
						t.Errorf("more than one request was relayed:\n%s", answer)
					}
					w.wantInStep(t, path, bearer)
				})
			}
		}
	}
}

// Request smuggling over HTTP/2, where the upstream side may be HTTP/1.1.
func TestSmugglingHTTP2(t *testing.T) {
	type field = rawclient.Field
	for _, cluster := range []string{fpH1, fpH2, ptH1} {
		up := shared.ups[cluster]
		w := way{px: shared.px, protocol: h2, cluster: cluster, up: up}
		bearer := scoped()
		// What a test before has broken off may come late: each has a name.
		const rest = "/api/NAME"
		path := "/clusters/" + ns + "/" + cluster + rest
		inner := "GET " + strings.TrimSuffix(path, rest) + "/smuggled HTTP/1.1\r\nHost: x\r\nX-Remote-User: f0rged\r\n\r\n"
		authorization := field{Name: "authorization", Value: "Bearer " + bearer}
		pseudo := func(method string) []field {
			return append(rawclient.Fields(method, w.px.Host, path), authorization)
		}
		post := func(more ...field) []field { return append(pseudo("POST"), more...) }
		tests := map[string]struct {
			fields []field
			body   string
		}{
			"CL zero and a body":         {post(field{Name: "content-length", Value: "0"}), inner},
			"CL too short":               {post(field{Name: "content-length", Value: "5"}), inner},
			"CL too long":                {post(field{Name: "content-length", Value: "5000"}), inner},
			"two CL":                     {post(field{Name: "content-length", Value: "0"}, field{Name: "content-length", Value: "500"}), inner},
			"a signed CL":                {post(field{Name: "content-length", Value: "+5"}), inner},
			"a CL with a line":           {post(field{Name: "content-length", Value: "0\r\nX-Remote-User: f0rged"}), inner},
			"TE":                         {post(field{Name: "transfer-encoding", Value: "chunked"}), "0\r\n\r\n" + inner},
			"TE in upper case":           {post(field{Name: "Transfer-Encoding", Value: "chunked"}), "0\r\n\r\n" + inner},
			"a body as chunks":           {post(), "0\r\n\r\n" + inner},
			"CR LF in a value":           {post(field{Name: "x-a", Value: "b\r\nX-Remote-User: f0rged"}), ""},
			"LF in a value":              {post(field{Name: "x-a", Value: "b\nX-Remote-User: f0rged"}), ""},
			"CR in a value":              {post(field{Name: "x-a", Value: "b\rX-Remote-User: f0rged"}), ""},
			"NUL in a value":             {post(field{Name: "x-a", Value: "b\x00X-Remote-User: f0rged"}), ""},
			"CR LF in a name":            {post(field{Name: "x-a: b\r\nx-remote-user", Value: "f0rged"}), ""},
			"a colon in a name":          {post(field{Name: "x-remote-user:", Value: "f0rged"}), ""},
			"a blank in a name":          {post(field{Name: "x-remote-user ", Value: "f0rged"}), ""},
			"an empty name":              {post(field{Name: "", Value: "f0rged"}), ""},
			"upper case":                 {post(field{Name: "X-Remote-User", Value: "f0rged"}), ""},
			"a name of other bytes":      {post(field{Name: "x-remote-us\u00e9r", Value: "f0rged"}), ""},
			"leading blanks in a value":  {post(field{Name: "x-remote-user", Value: " f0rged"}), ""},
			"an unknown pseudo field":    {append([]field{{Name: ":x-remote-user", Value: "f0rged"}}, post()...), ""},
			"a pseudo field at the end":  {post(field{Name: ":path", Value: "/clusters/team-a/" + cluster + "/smuggled"}), ""},
			"regular before pseudo":      {append([]field{{Name: "x-remote-user", Value: "f0rged"}}, post()...), ""},
			"two paths":                  {append([]field{{Name: ":path", Value: "/clusters/team-a/" + cluster + "/smuggled"}}, post()...), ""},
			"two methods":                {append([]field{{Name: ":method", Value: "GET"}}, post()...), ""},
			"two authorities":            {append([]field{{Name: ":authority", Value: "f0rged"}}, post()...), ""},
			"a status":                   {append([]field{{Name: ":status", Value: "200"}}, post()...), ""},
			"a line in the method":       {append(pseudo("GET /smuggled HTTP/1.1\r\nX-Remote-User: f0rged\r\n\r\nGET"), field{Name: "x-a", Value: "b"}), ""},
			"a blank in the method":      {pseudo("GET /smuggled"), ""},
			"an empty method":            {pseudo(""), ""},
			"a line in the authority":    {append(rawclient.Fields("GET", w.px.Host+"\r\nX-Remote-User: f0rged", path), authorization), ""},
			"a path in the authority":    {append(rawclient.Fields("GET", w.px.Host+"/clusters/team-a/"+cluster+"/smuggled?", path), authorization), ""},
			"a user in the authority":    {append(rawclient.Fields("GET", "f0rged@"+w.px.Host, path), authorization), ""},
			"an absolute path":           {append(rawclient.Fields("GET", w.px.Host, "https://f0rged.test"+path), authorization), ""},
			"another scheme":             {[]field{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "f0rged"}, {Name: ":authority", Value: w.px.Host}, {Name: ":path", Value: path}, authorization}, ""},
			"a line in the scheme":       {[]field{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https\r\nX-Remote-User: f0rged"}, {Name: ":authority", Value: w.px.Host}, {Name: ":path", Value: path}, authorization}, ""},
			"no scheme":                  {[]field{{Name: ":method", Value: "GET"}, {Name: ":authority", Value: w.px.Host}, {Name: ":path", Value: path}, authorization}, ""},
			"no path":                    {[]field{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: w.px.Host}, authorization}, ""},
			"no authority, a host":       {[]field{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: path}, authorization, {Name: "host", Value: w.px.Host}}, ""},
			"another host":               {post(field{Name: "host", Value: "f0rged.test"}), ""},
			"pseudo fields in odd order": {[]field{{Name: ":path", Value: path}, {Name: ":authority", Value: w.px.Host}, {Name: ":scheme", Value: "https"}, {Name: ":method", Value: "GET"}, authorization}, ""},
			"two authorizations":         {post(field{Name: "authorization", Value: "Bearer f0rged"}), ""},
			"a broken-up cookie":         {post(field{Name: "cookie", Value: "a=f0rged"}, field{Name: "cookie", Value: "b=f0rged"}), ""},
			"early data":                 {post(field{Name: "early-data", Value: "1"}), ""},
			"a priority of the request":  {post(field{Name: "priority", Value: "u=0"}), "{}"},
			"an upgrade that cannot be":  {post(field{Name: "upgrade", Value: "SPDY/3.1"}, field{Name: "connection", Value: "upgrade"}), ""},
			"HTTP2-Settings":             {post(field{Name: "http2-settings", Value: "AAMAAABkAAQAAP__"}), ""},
		}
		for name, tc := range tests {
			t.Run(name+" to "+cluster, func(t *testing.T) {
				up.Reset()
				conn := rawclient.MustDialH2(t, w.px.Host, w.px.CA.Pool())
				named := fmt.Sprintf("/api/%x", name)
				fields := slices.Clone(tc.fields)
				for i := range fields {
					fields[i].Value = strings.Replace(fields[i].Value, rest, named, 1)
				}
				s, err := conn.Open(fields, tc.body == "")
				if err != nil {
					t.Fatal(err)
				}
				if tc.body != "" {
					_, _ = s.Write([]byte(tc.body))
					_ = s.CloseWrite()
				}
				code, _, err := s.Head()
				if err == nil && code >= 500 && code != http.StatusBadGateway {
					t.Errorf("code %d", code)
				}
				w.wantInStep(t, named, bearer)
				for _, r := range up.Requests() {
					if r.Host != up.Host || len(r.Lines("Host")) > 1 {
						t.Errorf("host %q, lines %q", r.Host, r.Lines("Host"))
					}
				}
			})
		}
	}
}

// A header that is larger than the limit ends before the proxy sees it; one
// below it passes, whatever it is made of.
func TestHeaderSize(t *testing.T) {
	const limit = 64 << 10 // max_header_size of the examples
	everyWay(t, shared.px, func(t *testing.T, w way) {
		bearer := token(map[string]any{"padding": strings.Repeat("x", 30<<10)})
		if len(bearer) < 40<<10 {
			t.Fatalf("a token of %d bytes", len(bearer))
		}
		w.relayed(t, call{path: "/api"}.bearer(bearer))
		many := call{path: "/api"}.asAlice()
		for i := range 500 {
			many = many.with(fmt.Sprintf("X-Many-%d: %s", i, strings.Repeat("y", 50)))
		}
		if r := w.relayed(t, many); len(r.Like("x-many-")) != 500 {
			t.Errorf("%d of 500 lines came", len(r.Like("x-many-")))
		}
		if w.cluster != fpH2 {
			return // what follows never comes so far
		}
		for name, c := range map[string]call{
			"a token":       call{path: "/api"}.bearer(strings.Repeat("x", limit+8<<10)),
			"a header line": call{path: "/api"}.asAlice().with("X-Large: " + strings.Repeat("x", limit+8<<10)),
			"a path":        call{path: "/api/" + strings.Repeat("x", limit+8<<10)}.asAlice(),
			"many lines":    call{path: "/api"}.asAlice().with(many.lines...).with(many.lines...).with(many.lines...).with(many.lines...),
		} {
			w.up.Reset()
			code := headOnly(t, w, c)
			if code != 0 && code != http.StatusRequestHeaderFieldsTooLarge && code != http.StatusRequestURITooLong {
				t.Errorf("%s: code %d", name, code)
			}
			w.up.None(t)
		}
	})
	// The largest token that the limit lets in is judged, not cut.
	w := way{px: shared.px, protocol: h1, cluster: fpH2, up: shared.ups[fpH2]}
	w.refused(t, call{path: "/api"}.bearer(strings.Repeat("x", 60<<10)), http.StatusUnauthorized, "")
}

// headOnly sends a request that the server may not read to its end, and
// returns the code of the answer, or 0 for none.
func headOnly(t *testing.T, w way, c call) int {
	t.Helper()
	if c.cluster == "" {
		c.cluster = w.cluster
	}
	if w.protocol == h2 {
		s, err := rawclient.MustDialH2(t, w.px.Host, w.px.CA.Pool()).Open(c.h2(w.px), true)
		if err != nil {
			return 0
		}
		code, _, _ := s.Head()
		return code
	}
	conn := rawclient.MustDial(t, w.px.Host, w.px.CA.Pool())
	_ = conn.Send(c.h1(w.px))
	resp, err := conn.Head("GET")
	if err != nil {
		return 0
	}
	return resp.StatusCode
}

// A request of HTTP/1.0 is a request like any other, without what that version
// does not have.
func TestHTTP10(t *testing.T) {
	for cluster, up := range shared.ups {
		t.Run(cluster, func(t *testing.T) {
			w := way{px: shared.px, protocol: h1, cluster: cluster, up: up}
			send := func(lines string) string {
				up.Reset()
				conn := rawclient.MustDial(t, w.px.Host, w.px.CA.Pool())
				if err := conn.Send([]byte("GET /clusters/" + ns + "/" + cluster + "/api HTTP/1.0\r\nHost: " + w.px.Host + "\r\n" + lines + "\r\n")); err != nil {
					t.Fatal(err)
				}
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				answer, err := io.ReadAll(conn.R)
				if err != nil {
					t.Fatal(err)
				}
				return string(answer)
			}
			bearer := scoped()
			if a := send("Authorization: Bearer " + bearer + "\r\nX-Remote-User: f0rged\r\n"); !strings.HasPrefix(a, "HTTP/1.0 200") {
				t.Errorf("%s", a)
			}
			wantAlice(t, w, up.Only(t), bearer)
			if got := up.Only(t).Lines("Via"); len(got) != 1 || !strings.HasPrefix(got[0], "1.0 proxyauth-") {
				t.Errorf("Via %q", got)
			}
			if a := send("X-Remote-User: f0rged\r\n"); !strings.HasPrefix(a, "HTTP/1.0 401") || strings.Contains(a, "chunked") {
				t.Errorf("%s", a)
			}
			up.None(t)
			up.Handle(rawserver.Stream("application/json", rawserver.Event{Data: "{}\n"}))
			defer up.Handle(nil)
			if a := send("Authorization: Bearer " + bearer + "\r\n"); !strings.HasSuffix(a, "\r\n\r\n{}\n") || strings.Contains(a, "chunked") {
				t.Errorf("%s", a)
			}
		})
	}
}
