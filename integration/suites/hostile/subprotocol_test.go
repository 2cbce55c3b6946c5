package hostile

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

const protocolPrefix = "base64url.bearer.authorization.k8s.io."

// entry is a token as a WebSocket subprotocol.
func entry(token string) string {
	return protocolPrefix + base64.RawURLEncoding.EncodeToString([]byte(token))
}

const execPath = "/api/v1/namespaces/x/pods/y/exec?command=sh&stdin=true"

// HDR-06, AUTH-1: the token of a browser rides as a subprotocol; its entry is
// removed and the others keep lines and order.
func TestHDR06TokenInSubprotocol(t *testing.T) {
	bearer := scoped()
	e := entry(bearer)
	tests := map[string]struct {
		lines []string
		// want are the subprotocol lines at the upstream.
		want     []string
		protocol string
	}{
		"first": {[]string{"Sec-WebSocket-Protocol: " + e + ", v5.channel.k8s.io"}, []string{"v5.channel.k8s.io"}, "v5.channel.k8s.io"},
		"last":  {[]string{"Sec-WebSocket-Protocol: v5.channel.k8s.io," + e}, []string{"v5.channel.k8s.io"}, "v5.channel.k8s.io"},
		"in the midst": {[]string{"Sec-WebSocket-Protocol: v5.channel.k8s.io ,\t" + e + "\t, v4.channel.k8s.io,a"},
			[]string{"v5.channel.k8s.io, v4.channel.k8s.io, a"}, "v5.channel.k8s.io"},
		"a line of its own": {[]string{"Sec-WebSocket-Protocol: v5.channel.k8s.io", "sec-websocket-protocol: " + e, "Sec-WebSocket-Protocol: v4.channel.k8s.io"},
			[]string{"v5.channel.k8s.io", "v4.channel.k8s.io"}, "v5.channel.k8s.io"},
		"and the same in Authorization": {[]string{"Sec-WebSocket-Protocol: " + e + ", v5.channel.k8s.io", "Authorization: bearer " + bearer},
			[]string{"v5.channel.k8s.io"}, "v5.channel.k8s.io"},
		"spelling of Upgrade": {[]string{"Sec-WebSocket-Protocol: " + e + ", v5.channel.k8s.io", "upgrade: WebSocket"},
			[]string{"v5.channel.k8s.io"}, "v5.channel.k8s.io"},
	}
	for name, tc := range tests {
		for cluster, up := range shared.ups {
			t.Run(name+" to "+cluster, func(t *testing.T) {
				up.Reset()
				up.Handle(rawserver.Echo)
				defer up.Handle(nil)
				c := call{cluster: cluster, path: execPath, lines: websocket(tc.lines...)}
				a := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool()).Do(t, c.h1(shared.px))
				if a.Code != http.StatusSwitchingProtocols {
					t.Fatalf("code %d: %s", a.Code, a.Body)
				}
				if got := a.Header.Values("Sec-WebSocket-Protocol"); !slices.Equal(got, []string{tc.protocol}) {
					t.Errorf("the response's protocol: %q", got)
				}
				r := up.Only(t)
				if got := r.Lines("Sec-WebSocket-Protocol"); !slices.Equal(got, tc.want) {
					t.Errorf("subprotocols at the upstream: %q, want %q", got, tc.want)
				}
				wantAlice(t, way{px: shared.px, protocol: h1, cluster: cluster, up: up}, r, bearer)
				wantHTTP1(t, r)
				if strings.Contains(r.Text(), e[len(protocolPrefix):]) {
					t.Error("the entry went upstream")
				}
			})
		}
	}
}

// websocket are the lines of a WebSocket upgrade, without an Upgrade header of
// their own when the test brings one.
func websocket(lines ...string) []string {
	all := rawclient.UpgradeLines(lines...)
	for _, line := range lines {
		if strings.HasPrefix(strings.ToLower(line), "upgrade:") {
			return slices.DeleteFunc(all, func(s string) bool { return s == "Upgrade: websocket" })
		}
	}
	return all
}

// HDR-06, AUTH-2: everything else about such entries is a 401 before any
// upstream byte.
func TestHDR06Refused(t *testing.T) {
	bearer, other := scoped(), scoped()
	e := entry(bearer)
	padded := protocolPrefix + base64.URLEncoding.EncodeToString([]byte(bearer+strings.Repeat("=", 4-len(bearer)%3)))
	if !strings.HasSuffix(padded, "=") {
		padded += "="
	}
	upgrades := map[string][]string{
		"the entry alone":               {"Sec-WebSocket-Protocol: " + e},
		"the entry alone, empty others": {"Sec-WebSocket-Protocol: " + e + ", ,", "Sec-WebSocket-Protocol:"},
		"two entries":                   {"Sec-WebSocket-Protocol: " + e + ", " + entry(other) + ", v5.channel.k8s.io"},
		"the same entry twice":          {"Sec-WebSocket-Protocol: " + e + ", v5.channel.k8s.io", "Sec-WebSocket-Protocol: " + e},
		"padded":                        {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + padded},
		"the other base64":              {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + protocolPrefix + "a+/b"},
		"no base64":                     {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + protocolPrefix + "!!!!"},
		"trailing bits":                 {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + protocolPrefix + "aR"},
		"no UTF-8":                      {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + protocolPrefix + "_w"},
		"nothing in it":                 {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + protocolPrefix},
		"a good one and an empty one":   {"Sec-WebSocket-Protocol: " + e + ", v5.channel.k8s.io, " + protocolPrefix},
		"a bad token":                   {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + entry("nonsense")},
		"a token with a space":          {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + entry(bearer+" x")},
		"another spelling":              {"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + strings.ToUpper(protocolPrefix) + e[len(protocolPrefix):]},
		"another token in Authorization": {
			"Sec-WebSocket-Protocol: " + e + ", v5.channel.k8s.io", "Authorization: Bearer " + other,
		},
		"another scheme in Authorization": {
			"Sec-WebSocket-Protocol: " + e + ", v5.channel.k8s.io", "Authorization: Basic YWxpY2U6c2VjcmV0",
		},
		"two Authorization lines": {"Sec-WebSocket-Protocol: v5.channel.k8s.io", "Authorization: Bearer " + bearer, "Authorization: Bearer " + bearer},
		"a bad entry beside a good Authorization": {
			"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + protocolPrefix + "!!", "Authorization: Bearer " + bearer,
		},
	}
	for name, lines := range upgrades {
		for cluster, up := range shared.ups {
			t.Run(name+" to "+cluster, func(t *testing.T) {
				w := way{px: shared.px, protocol: h1, cluster: cluster, up: up}
				w.refused(t, call{path: execPath, lines: websocket(lines...)}, http.StatusUnauthorized, "")
			})
		}
	}
	protocols := "Sec-WebSocket-Protocol: " + e + ", v5.channel.k8s.io"
	everyWay(t, shared.px, func(t *testing.T, w way) {
		w.refused(t, call{path: execPath}.with(protocols), http.StatusUnauthorized, "")
		w.refused(t, call{path: execPath}.bearer(bearer).with(protocols), http.StatusUnauthorized, "")
		if w.protocol == h1 {
			w.refused(t, call{path: execPath}.with(protocols, "Connection: Upgrade", "Upgrade: SPDY/3.1"), http.StatusUnauthorized, "")
			w.refused(t, call{path: execPath}.with(protocols, "Upgrade: websocket"), http.StatusUnauthorized, "")
			w.refused(t, call{path: execPath}.with(protocols, "Connection: Upgrade"), http.StatusUnauthorized, "")
		}
	})
}

// AUTH-2: what never is a credential, and what is one too many.
func TestHDR06NoOtherCredential(t *testing.T) {
	bearer := scoped()
	tests := map[string]call{
		"a query parameter":         {path: "/api?access_token=" + bearer},
		"a query parameter (token)": {path: "/version?token=" + bearer},
		"a cookie":                  {path: "/api", lines: []string{"Cookie: token=" + bearer + "; Authorization=Bearer " + bearer}},
		"an origin":                 {path: "/api", lines: []string{"Origin: https://alice@" + shared.px.Host}},
		"Proxy-Authorization":       {path: "/api", lines: []string{"Proxy-Authorization: Bearer " + bearer}},
		"X-Remote-User":             {path: "/api", lines: []string{"X-Remote-User: alice"}},
		"Basic":                     {path: "/version", lines: []string{"Authorization: Basic YWxpY2U6c2VjcmV0"}},
		"no scheme":                 {path: "/api", lines: []string{"Authorization: " + bearer}},
		"two lines":                 {path: "/healthz", lines: []string{"Authorization: Bearer " + bearer, "authorization: Bearer " + bearer}},
		"two tokens":                {path: "/api", lines: []string{"Authorization: Bearer " + bearer + " " + bearer}},
		"two tokens, comma":         {path: "/api", lines: []string{"Authorization: Bearer " + bearer + ", Bearer " + bearer}},
		"two spaces":                {path: "/api", lines: []string{"Authorization: Bearer  " + bearer}},
		"quotes":                    {path: "/api", lines: []string{`Authorization: Bearer "` + bearer + `"`}},
		"an empty token":            {path: "/api", lines: []string{"Authorization: Bearer "}},
		"an empty line":             {path: "/api", lines: []string{"Authorization:"}},
		"an empty line beside it":   {path: "/api", lines: []string{"Authorization: Bearer " + bearer, "Authorization:"}},
		"other bytes":               {path: "/api", lines: []string{"Authorization: Bearer " + bearer + "é"}},
		"nothing":                   {path: "/version"},
		"nothing, OPTIONS":          {method: "OPTIONS", path: "/api", lines: []string{"Origin: https://x.test", "Access-Control-Request-Method: GET"}},
		"nothing, POST":             {method: "POST", path: "/api", body: []byte("{}")},
		"nothing, any method":       {method: "BREW", path: "/api"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			everyWay(t, shared.px, func(t *testing.T, w way) { w.refused(t, c, http.StatusUnauthorized, "") })
		})
	}
	// The scheme in any case is one.
	for _, scheme := range []string{"bearer", "BEARER", "BeArEr"} {
		everyWay(t, shared.px, func(t *testing.T, w way) {
			wantAlice(t, w, w.relayed(t, call{path: "/api"}.with("Authorization: "+scheme+" "+bearer)), bearer)
		})
	}
	// A certificate shown to the proxy is none, and does not disturb one.
	w := way{px: shared.px, protocol: h1, cluster: fpH2, up: shared.ups[fpH2]}
	w.up.Reset()
	conn, err := rawclient.Dial(t.Context(), w.px.Host, "", w.px.CA.Pool(), w.up.FrontProxy(9).TLS())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wantStatus(t, conn.Do(t, call{cluster: fpH2, path: "/api"}.with("X-Remote-User: root").h1(w.px)), http.StatusUnauthorized, "")
	w.up.None(t)
}
