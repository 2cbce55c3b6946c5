package hostile

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// from is a dialer with another address of the loopback network: peers that
// the proxy can tell apart.
func from(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

// doFrom sends a request from that address.
func doFrom(t *testing.T, px *proxy.Proxy, protocol, address string, c call) int {
	t.Helper()
	if protocol == h2 {
		transport := &http.Transport{
			DialContext: from(address).DialContext, ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: px.CA.Pool()},
		}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.URL+c.requestTarget(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range c.lines {
			name, value, _ := strings.Cut(line, ": ")
			req.Header.Add(name, value)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Fatalf("spoke %s", resp.Proto)
		}
		return resp.StatusCode
	}
	d := tls.Dialer{NetDialer: from(address), Config: &tls.Config{RootCAs: px.CA.Pool(), NextProtos: []string{"http/1.1"}}}
	tc, err := d.DialContext(t.Context(), "tcp", px.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer tc.Close()
	return (&rawclient.Conn{Conn: tc, R: bufio.NewReader(tc)}).Do(t, c.h1(px)).Code
}

// HDR-08, ID-5: an address that a client claims counts only when the peer is a
// proxy the admin trusts.
func TestHDR08ForwardedFor(t *testing.T) {
	const untrusted, trusted = "127.0.0.1", "127.0.0.2"
	px := startProxy(t, proxy.Options{Global: "servers 127.0.0.1:%{port} {\n\tprotocols h1 h2\n\ttrusted_proxies static 127.0.0.2/32\n}"}, nil)
	claims := map[string]struct {
		lines []string
		// want is X-Forwarded-For and source the audit's source_ip, when the
		// peer is trusted.
		want, source string
	}{
		"one":              {[]string{"X-Forwarded-For: 203.0.113.9"}, "203.0.113.9, 127.0.0.2", "203.0.113.9"},
		"a list":           {[]string{"X-Forwarded-For: 203.0.113.9, 198.51.100.4"}, "203.0.113.9, 198.51.100.4, 127.0.0.2", "203.0.113.9"},
		"two lines":        {[]string{"X-Forwarded-For: 203.0.113.9", "x-forwarded-for: 198.51.100.4"}, "203.0.113.9, 198.51.100.4, 127.0.0.2", "203.0.113.9"},
		"none":             {nil, "127.0.0.2", "127.0.0.2"},
		"named hop-by-hop": {[]string{"X-Forwarded-For: 203.0.113.9", "Connection: X-Forwarded-For"}, "127.0.0.2", "203.0.113.9"},
	}
	others := []string{"X-Real-Ip: 203.0.113.9", "Forwarded: for=203.0.113.9;by=203.0.113.9", "X_Forwarded_For: 203.0.113.9", "X-Forwarded-User: root"}
	for name, claim := range claims {
		for _, peer := range []string{untrusted, trusted} {
			for cluster, up := range shared.ups {
				for _, protocol := range []string{h1, h2} {
					if protocol == h2 && slices.Contains(claim.lines, "Connection: X-Forwarded-For") {
						continue // HTTP/2 has no Connection header
					}
					t.Run(strings.Join([]string{name, "from", peer, protocol, "to", cluster}, " "), func(t *testing.T) {
						up.Reset()
						path := "/api/" + strings.ReplaceAll(strings.Join([]string{name, peer, protocol, cluster}, "-"), " ", "-")
						c := call{cluster: cluster, path: path}.asAlice().with(claim.lines...).with(others...)
						if code := doFrom(t, px, protocol, peer, c); code != http.StatusOK {
							t.Fatalf("code %d", code)
						}
						want, source := claim.want, claim.source
						if peer == untrusted {
							want, source = untrusted, untrusted
						}
						r := up.Only(t)
						if got := r.Lines("X-Forwarded-For"); !slices.Equal(got, []string{want}) {
							t.Errorf("X-Forwarded-For %q, want %q", got, want)
						}
						for _, name := range []string{"x-real-ip", "forwarded", "x-forwarded-user"} {
							if got := folded(r, name); len(got) > 0 {
								t.Errorf("at the upstream: %v", got)
							}
						}
						if got := audited(t, px, path).Text("source_ip"); got != source {
							t.Errorf("source_ip %q, want %q", got, source)
						}
					})
				}
			}
		}
	}
	t.Run("upgrade", func(t *testing.T) {
		up := shared.ups[fpH2]
		up.Handle(rawserver.Echo)
		defer up.Handle(nil)
		for peer, want := range map[string]string{untrusted: untrusted, trusted: "203.0.113.9, 127.0.0.2"} {
			up.Reset()
			c := call{cluster: fpH2, path: "/exec"}.asAlice().with("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Forwarded-For: 203.0.113.9", "X-Real-Ip: 203.0.113.9")
			if code := doFrom(t, px, h1, peer, c); code != http.StatusSwitchingProtocols {
				t.Fatalf("code %d", code)
			}
			if got := up.Only(t).Lines("X-Forwarded-For"); !slices.Equal(got, []string{want}) || len(up.Only(t).Lines("X-Real-Ip")) > 0 {
				t.Errorf("from %s: X-Forwarded-For %q, want %q", peer, got, want)
			}
		}
	})
}
