package kubernetes

import (
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/leakcheck"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// SIG-3, OBS-01 for AUTH-8: no piece of a token, and no word of an apiserver that
// echoes it, is in a log at any level, in the metrics, in a status or in an
// answer; a target gets the tokens of its own callers alone.
func TestNoTokenAnywhere(t *testing.T) {
	w, echo := get(t), bare(t)
	echo.Handle(func(w *rawserver.Writer, r *rawserver.Request) {
		w.JSON(http.StatusForbidden, map[string]string{"kind": "Status", "message": r.Header.Get("Authorization")})
	})
	px := start(t, "probe_interval 1s", w.cluster("prod"), proxy.Cluster(ns, "echo", echo.URL, echo.ServerCA))
	tokens := map[string]string{
		"good":       w.account(t, "default", "secret"),
		"expired":    w.idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}),
		"opaque":     "opaque-0123456789-abcdefghijklmnop",
		"large":      strings.Repeat("0123456789abcdefABCDEF-_.", 20<<10/25),
		"no b64":     "eyJhbGciOiJSUzI1NiJ9.this-is-not-base64url!!!",
		"of another": w.idp.Token(oidc.Alice, map[string]any{"iss": "https://another.example.test"}),
	}
	p := leakcheck.Pieces{}
	for name, token := range tokens {
		p.AddBearer(name, token)
	}
	client := px.Client("h1")
	defer client.CloseIdleConnections()
	codes := map[int]int{}
	for name, token := range tokens {
		for _, cluster := range []string{"prod", "echo"} {
			for _, header := range []http.Header{
				{"Authorization": {"Bearer " + token}},
				{"Authorization": {"bearer " + token}},
				{"Authorization": {"Basic " + token}},
				{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-WebSocket-Version": {"13"}, "Sec-WebSocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
					"Sec-WebSocket-Protocol": {"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))}},
			} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.ClusterURL(ns, cluster)+"/version", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header = header
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				codes[resp.StatusCode]++
				p.Absent(t, "answer to "+name, string(body)+strings.Join(resp.Header.Values("Warning"), ""))
			}
		}
	}
	if codes[http.StatusOK] < 2 || codes[http.StatusUnauthorized] == 0 || codes[http.StatusServiceUnavailable] == 0 {
		t.Errorf("answers %v", codes)
	}
	metrics := px.MustMetrics(t)
	if !strings.Contains(metrics, `proxyauth_authentication_total{method="Kubernetes",result="ok"}`) {
		t.Errorf("metrics:\n%s", metrics)
	}
	p.Absent(t, "metrics", metrics)
	_, statuses, err := px.AdminDo(t.Context(), http.MethodGet, "/proxyauth/clusters", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Absent(t, "status", statuses)
	p.Absent(t, "log", px.Everything())
	files, err := px.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		p.Absent(t, name, string(content))
	}
}
