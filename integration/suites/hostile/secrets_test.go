package hostile

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/leakcheck"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// OBS-01, SIG-3: no piece of a credential in any log at any level, in the
// metrics, in answers, or at the upstream.
func TestOBS01NoCredentialAnywhere(t *testing.T) {
	open := proxy.Cluster(ns, "pass-open", shared.ups[ptH2].URL, shared.ups[ptH2].ServerCA)
	open.Spec.AuthConfig = &v1.AuthConfig{DisableValidation: true}
	px := startProxy(t, proxy.Options{LogLevel: "DEBUG", Site: proxy.ExampleAccessLog, Settings: "impersonation deny"},
		map[string]string{"pass-open.yaml": proxy.Manifests(open)})
	ups := maps.Clone(shared.ups)
	delete(ups, ptH2) // as ptH1, with less to see
	ups["pass-open"] = shared.ups[ptH2]

	idp := shared.idp
	flipped := oidc.FlipSignatureBit(token(nil))
	large := strings.Repeat("abcdefghijklmnopqrstuvwxyz012345", 20<<10/32)
	bearers := map[string]string{
		"valid": token(nil), "expired": token(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}),
		"flipped": flipped, "another audience": token(map[string]any{"aud": "proxy-b"}),
		"no signature": idp.Unsigned(idp.Claims(oidc.Alice, nil), "none"), "opaque": "opaque-0123456789-abcdefghijklmnop",
		"malformed": "eyJhbGciOiJSUzI1NiJ9.this-is-not-base64url!!!-at-all.and-neither-is-this+/=", "not printable": "secret-\xff\xfe-secret-0123456789",
		"large and valid": token(map[string]any{"padding": large}), "large and opaque": strings.Repeat("0123456789abcdefABCDEF-_.", 20<<10/25),
		"refused identity": token(map[string]any{"groups": "a\x01"}), "with a comma": "secret-part-one-0123,secret-part-two-4567",
	}
	p := leakcheck.Pieces{}
	var calls []call
	for name, bearer := range bearers {
		p.AddBearer(name, bearer)
		calls = append(calls, call{path: "/api"}.bearer(bearer), call{path: "/api"}.with("authorization: bearer "+bearer),
			call{path: "/api", method: "POST", body: []byte("{}")}.bearer(bearer), call{path: "/api"}.bearer(bearer).with("Impersonate-User: bob"),
			call{path: "/api/%2e%2e/x"}.bearer(bearer), call{target: "/clusters/team-a/none/api"}.bearer(bearer),
			call{path: "/exec"}.bearer(bearer).with("Connection: Upgrade", "Upgrade: SPDY/3.1"),
			call{path: "/exec"}.bearer(bearer).with("Connection: Upgrade", "Upgrade: h2c"),
			call{path: "/api"}.with("Authorization: Bearer "+bearer, "Authorization: Bearer "+bearer),
			call{path: "/api"}.with("Authorization: "+bearer), call{path: "/api"}.with("Authorization: Bearer  "+bearer+" x"),
			call{path: "/api?access_token=" + escape(bearer)}, call{path: "/api?access_token=" + escape(bearer)}.bearer(bearers["valid"]),
			call{path: "/api"}.with("Cookie: session="+strings.ReplaceAll(bearer, ",", "")).bearer(bearers["valid"]),
			call{path: "/api"}.with("Proxy-Authorization: Bearer "+bearer).bearer(bearers["valid"]))
		e := entry(bearer)
		for _, protocols := range []string{e + ", v5.channel.k8s.io", e, e + ", " + e + ", v5.channel.k8s.io", e + "=, v5.channel.k8s.io", strings.ToUpper(e[:20]) + e[20:] + ", v5.channel.k8s.io"} {
			calls = append(calls, call{path: "/exec", lines: rawclient.UpgradeLines("Sec-WebSocket-Protocol: " + protocols)},
				call{path: "/exec"}.with("Sec-WebSocket-Protocol: "+protocols), call{path: "/exec"}.bearer(bearers["valid"]).with("Sec-WebSocket-Protocol: "+protocols))
		}
	}
	basic := base64.StdEncoding.EncodeToString([]byte("alice:correct-horse-battery-staple"))
	p.Add("Basic", basic)
	calls = append(calls, call{path: "/api"}.with("Authorization: Basic "+basic), call{path: "/api"}.with("authorization: basic "+basic),
		call{path: "/exec"}.with("Authorization: Basic "+basic, "Connection: Upgrade", "Upgrade: SPDY/3.1"))
	digest := `username="alice", response="6629fae49393a05397450978507c4ef1", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093"`
	p.Add("Digest", "6629fae49393a05397450978507c4ef1")
	calls = append(calls, call{path: "/api"}.with("Authorization: Digest "+digest))

	codes := map[int]int{}
	for cluster, up := range ups {
		up.Reset()
		for _, protocol := range []string{h1, h2} {
			for _, c := range calls {
				upgrade := slices.ContainsFunc(c.lines, func(l string) bool { return strings.HasPrefix(l, "Connection:") })
				if protocol == h2 && upgrade {
					continue
				}
				if upgrade {
					up.Handle(func(w *rawserver.Writer, r *rawserver.Request) {
						r.Header.Del("Sec-WebSocket-Protocol") // no server chooses the token
						rawserver.Echo(w, r)
					})
				}
				c.cluster = cluster
				a := attempt(t, px, protocol, c)
				up.Handle(nil)
				codes[a.Code]++
				p.Absent(t, fmt.Sprintf("%s, %s: the answer, %d", cluster, protocol, a.Code), fmt.Sprint(a.Header)+a.Body)
			}
		}
		for _, r := range up.AllRequests() {
			text := r.Text()
			if strings.HasPrefix(cluster, "pass") {
				// In Passthrough the bearer goes on as Authorization, and
				// without validation whatever came does.
				for _, name := range []string{"Authorization", "Sec-WebSocket-Protocol"} {
					for _, value := range r.Lines(name) {
						if cluster == "pass-open" || name == "Authorization" {
							text = strings.ReplaceAll(text, value, "")
						}
					}
				}
			}
			if _, query, ok := strings.Cut(r.Target, "?access_token="); ok {
				// A query is never a credential and goes on byte for byte.
				text = strings.ReplaceAll(text, query, "")
			}
			p.Absent(t, "the upstream of "+cluster, text)
		}
	}
	for _, code := range []int{200, 101, 401, 403, 404, 400} {
		if codes[code] == 0 {
			t.Errorf("no answer was a %d: %v", code, codes)
		}
	}
	t.Logf("%d requests, answers %v, %d pieces", len(calls)*2*len(ups), codes, len(p))

	texts := map[string]string{"the log": px.Everything(), "the metrics": px.MustMetrics(t)}
	files, err := px.Files()
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range files {
		texts[file] = string(content)
	}
	for name, text := range texts {
		p.Absent(t, name, text)
	}
	// The search itself: the texts are there, and a piece would be found.
	if log := px.Everything(); !strings.Contains(log, "upstream roundtrip") || !strings.Contains(log, `"logger":"proxyauth.audit"`) || !p.Has("x"+bearers["valid"][100:120]) {
		t.Error("there was nothing to find anything in")
	}
}

func escape(s string) string {
	return strings.NewReplacer("\xff", "%ff", "\xfe", "%fe", ",", "%2C").Replace(s)
}

// attempt is do for requests that the server in front of the proxy may refuse
// without an answer.
func attempt(t *testing.T, px *proxy.Proxy, protocol string, c call) rawclient.Answer {
	t.Helper()
	if protocol == h2 {
		conn := rawclient.MustDialH2(t, px.Host, px.CA.Pool())
		defer conn.Close()
		s, err := conn.Open(c.h2(px), len(c.body) == 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.body) > 0 {
			_, _ = s.Write(c.body)
			_ = s.CloseWrite()
		}
		code, header, err := s.Head()
		if err != nil {
			return rawclient.Answer{}
		}
		return rawclient.Answer{Code: code, Header: header, Body: readAll(s)}
	}
	conn := rawclient.MustDial(t, px.Host, px.CA.Pool())
	defer conn.Close()
	if err := conn.Send(c.h1(px)); err != nil {
		t.Fatal(err)
	}
	resp, err := conn.Head(http.MethodGet)
	if err != nil {
		return rawclient.Answer{}
	}
	a := rawclient.Answer{Code: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		a.Body = readAll(resp.Body)
	}
	return a
}
