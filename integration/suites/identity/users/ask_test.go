package users

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// answer is what a request through the proxy got.
type answer struct {
	Code   int
	Header http.Header
	Body   string
	took   time.Duration
}

// ask sends one request with a bearer to a cluster.
func ask(t *testing.T, px *proxy.Proxy, protocol, cluster, path, bearer string) answer {
	t.Helper()
	return send(t, px, protocol, cluster, path, kube.Bearer(bearer))
}

// send is ask with any header. Its client gives up after three times what a
// provider may take.
func send(t *testing.T, px *proxy.Proxy, protocol, cluster, path string, header http.Header) answer {
	t.Helper()
	client := px.Client(protocol)
	defer client.CloseIdleConnections()
	client.Timeout = 30 * time.Second
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.ClusterURL(ns, cluster)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	start := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body), time.Since(start)}
}

// refused fails unless an answer is the proxy's own with that code and a
// message that holds text (ANS-1).
func (a answer) refused(t *testing.T, code int, text string) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(a.Body), &status); err != nil || a.Code != code || int(status.Code) != code || !strings.Contains(status.Message, text) {
		t.Errorf("answered %d %s, want %d with %q", a.Code, a.Body, code, text)
	}
	if !strings.HasPrefix(a.Header.Get("Warning"), `299 - "proxyauth: `) || (code == http.StatusUnauthorized) != (a.Header.Get("WWW-Authenticate") == "Bearer") {
		t.Errorf("a %d with the header %v", code, a.Header)
	}
}

// payload is that of a JWT.
func payload(t *testing.T, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%d parts in a JWT", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}
