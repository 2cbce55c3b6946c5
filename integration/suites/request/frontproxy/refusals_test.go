package frontproxy

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// rawUpgrade sends a WebSocket handshake.
func rawUpgrade(t *testing.T, w *world, cluster, path string, lines ...string) rawclient.Answer {
	t.Helper()
	lines = append(lines, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
	return rawclient.Do(t, w.px.Host, w.px.CA.Pool(), rawclient.Request("GET", "/clusters/"+ns+"/"+cluster+path, w.px.Host, lines...))
}

// ID-2, TOK-10, FWD-04: an identity that cannot be forwarded is refused before
// anything of the request reaches the apiserver, over HTTP/1.1, HTTP/2 and as
// an upgrade; it is counted and audited, and its value is nowhere.
func TestID2RefusalsDoNotReachTheApiserver(t *testing.T) {
	w := get(t)
	long := strings.Repeat("L0ngValue", 1000)
	tests := []struct {
		name, cluster  string
		claims         map[string]any
		reason, kind   string
		contains, leak string // leak is a piece of the value
	}{
		{"system: name from prefix and name", "refuse-sys", map[string]any{"preferred_username": "tem:AdmiN-of-all"}, "system_prefix", "the user name", "has a reserved system: name or group", "AdmiN-of-all"},
		{"system: group from prefix and group", "refuse-group", map[string]any{"groups": []string{"dev", ":mAsters"}}, "system_prefix", "a group", "has a reserved system: name or group", "mAsters"},
		{"system: before everything else", "refuse-group", map[string]any{"groups": append(numbered(65), ":mAsters")}, "system_prefix", "a group", "has a reserved system: name or group", "mAsters"},
		{"null name", "prod", map[string]any{"preferred_username": rawNull}, "empty_username", "the user name", "has no username for the configured claim", ""},
		{"empty name", "prod", map[string]any{"preferred_username": ""}, "empty_username", "the user name", "has no username for the configured claim", ""},
		{"blank name", "prod", map[string]any{"preferred_username": " \u2003\u00a0"}, "empty_username", "the user name", "has no username for the configured claim", ""},
		{"line break in the name", "prod", map[string]any{"preferred_username": "eVe-the-unsendable\r\nX-Remote-Group: system:masters"}, "untransmittable", "the user name", "has a value it cannot forward", "eVe-the-unsendable"},
		{"space before the name", "prod", map[string]any{"preferred_username": " eVe-the-unsendable"}, "untransmittable", "the user name", "has a value it cannot forward", "eVe-the-unsendable"},
		{"C1 control in the name", "prod", map[string]any{"preferred_username": "eVe-the-unsendable\u0085x"}, "untransmittable", "the user name", "has a value it cannot forward", "eVe-the-unsendable"},
		{"NUL in a group", "prod", map[string]any{"groups": []string{"dev", "grOup\x00y"}}, "untransmittable", "a group", "has a value it cannot forward", "grOup"},
		{"DEL in a group", "prod", map[string]any{"groups": []string{"grOup\x7f"}}, "untransmittable", "a group", "has a value it cannot forward", "grOup"},
		{"space after a group", "prod", map[string]any{"groups": []string{"grOup\u00a0"}}, "untransmittable", "a group", "has a value it cannot forward", "grOup"},
		{"empty group", "prod", map[string]any{"groups": []string{"dev", ""}}, "untransmittable", "a group", "has a value it cannot forward", ""},
		{"line feed in an extra value", "prod", map[string]any{"dept": "eXtra\nvalue"}, "untransmittable", "an extra value", "has a value it cannot forward", "eXtra"},
		{"65 groups", "prod", map[string]any{"groups": append(numbered(64), "grOup-65")}, "too_large", "the groups", "is too large to forward", "grOup-65"},
		{"long name", "prod", map[string]any{"preferred_username": long}, "too_large", "", "is too large to forward", "L0ngValue"},
		{"long groups", "prod", map[string]any{"groups": []string{long[:4500], long[:4501]}}, "too_large", "", "is too large to forward", "L0ngValue"},
		{"long extra", "prod", map[string]any{"dept": []string{long[:4500], long[:4500]}}, "too_large", "", "is too large to forward", "L0ngValue"},
		{"overage", "prod", map[string]any{"groups": nil, "_claim_names": map[string]string{"groups": "src1"}, "_claim_sources": map[string]any{"src1": map[string]string{"endpoint": "https://127.0.0.1:1/graph"}}}, "too_large", "the groups", "is too large to forward", "graph"},
	}
	before := w.refused(t)
	counts := map[string]int{}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token := w.idp.Token(oidc.Alice, tt.claims)
			for _, way := range []string{"h1", "h2", "websocket"} {
				marker := fmt.Sprintf("refused-%d-%s", i, way)
				code, header, body := w.send(t, way, tt.cluster, token, marker)
				counts[tt.reason]++
				if code != http.StatusForbidden || !strings.Contains(body, tt.contains) || !strings.Contains(body, tt.kind) || !strings.Contains(header.Get("Warning"), tt.contains) {
					t.Errorf("%s: %d %s %v", way, code, body, header)
				}
				if tt.leak != "" && strings.Contains(body+strings.Join(header["Warning"], ""), tt.leak) {
					t.Errorf("%s: the answer holds the value: %s %v", way, body, header)
				}
				line := w.px.MustAudit(t, func(e proxy.Entry) bool { return strings.Contains(e.Text("path"), marker) })
				if line.Text("reason") != "upstream_identity_refused" || !strings.Contains(line.Text("message"), tt.contains) {
					t.Errorf("%s: audit: %v", way, line)
				}
			}
			if tt.leak != "" && strings.Contains(w.px.Everything(), tt.leak) {
				t.Errorf("the value is in the log of the proxy:\n%s", around(w.px.Everything(), tt.leak))
			}
		})
	}
	// The apiserver writes its audit log in order of completion, so the event of
	// a request that was let through comes after all others.
	marker := "not-refused"
	if code, _, body := w.send(t, "h1", "prod", w.idp.Token(oidc.Alice, nil), marker); code != http.StatusForbidden || !strings.Contains(body, "proxyauth:alice") {
		t.Fatalf("a good identity: %d %s", code, body)
	}
	w.plain.MustAudit(t, func(e *auditv1.Event) bool { return strings.Contains(e.RequestURI, marker) })
	events := audited(t, w.plain, func(e *auditv1.Event) bool {
		return strings.Contains(e.RequestURI, "refused-") && !strings.Contains(e.RequestURI, marker)
	})
	if len(events) > 0 {
		t.Errorf("%d refused requests reached the apiserver, the first: %+v", len(events), events[0])
	}
	after := w.refused(t)
	for reason, n := range counts {
		if after[reason]-before[reason] != n {
			t.Errorf("proxyauth_upstream_identity_refused_total{reason=%q} grew by %d, want %d", reason, after[reason]-before[reason], n)
		}
	}
	t.Logf("%d kinds, %v refusals, none at the apiserver", len(tests), counts)
}

// send asks for a pod whose name is the marker, with a body where the protocol
// allows one.
func (w *world) send(t *testing.T, way, cluster, token, marker string) (int, http.Header, string) {
	t.Helper()
	path := "/api/v1/namespaces/default/pods/" + marker
	if way == "websocket" {
		a := rawUpgrade(t, w, cluster, path+"/exec?command=sh", "Authorization: Bearer "+token, "Sec-WebSocket-Protocol: v5.channel.k8s.io")
		return a.Code, a.Header, a.Body
	}
	client := w.px.Client(way)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url(cluster)+path, strings.NewReader(`{"kind":"Pod"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = kube.Bearer(token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

var refusedTotal = regexp.MustCompile(`(?m)^proxyauth_upstream_identity_refused_total\{reason="([a-z_]+)"\} ([0-9]+)$`)

// refused reads proxyauth_upstream_identity_refused_total (SIG-1).
func (w *world) refused(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, m := range refusedTotal.FindAllStringSubmatch(w.px.MustMetrics(t), -1) {
		var n int
		fmt.Sscan(m[2], &n)
		counts[m[1]] = n
	}
	return counts
}

// around is a text with what stands beside it.
func around(s, text string) string {
	i := strings.Index(s, text)
	return s[max(0, i-200):min(len(s), i+200)]
}
