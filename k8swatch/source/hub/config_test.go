package hub

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	testToken  = "s3cr3t-t0ken"
	kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: "https://NAME.example"}}]
users: [{name: me, user: {token: ` + testToken + `}}]
contexts: [{name: it, context: {cluster: hub, user: me}}]
current-context: it
`
)

func TestLoadKubernetesConfig(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := file("one", strings.ReplaceAll(kubeconfig, "NAME", "one"))
	two := file("two", strings.ReplaceAll(kubeconfig, "NAME", "two"))
	broken := file("broken", "apiVersion: v1\nkind: Config\nusers: "+testToken+"\n")
	empty := file("empty", "")
	absent := filepath.Join(dir, "absent")
	for _, tt := range []struct {
		name, path, env string
		host            string
		fails           string
	}{
		{name: "a path", path: one, env: two, host: "https://one.example"},
		{name: "KUBECONFIG", env: two, host: "https://two.example"},
		{name: "several in KUBECONFIG", env: absent + string(filepath.ListSeparator) + two, host: "https://two.example"},
		{name: "nothing", fails: "KUBECONFIG is not set"},
		{name: "an absent path", path: absent, env: two, fails: "no such file"},
		{name: "an absent file in KUBECONFIG", env: absent, fails: "no such file"},
		{name: "no kubeconfig", path: broken, fails: "is no kubeconfig"},
		{name: "an empty one", path: empty, fails: "no configuration has been provided"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			t.Setenv("KUBECONFIG", tt.env)
			config, err := LoadConfig(tt.path)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("error: %v, want %q", err, tt.fails)
				}
				if strings.Contains(err.Error(), testToken) {
					t.Errorf("the error repeats the credential: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != tt.host || config.BearerToken != testToken {
				t.Errorf("%s as %q", config.Host, config.BearerToken)
			}
			if !strings.HasPrefix(config.UserAgent, "proxyauthk8s/") || config.QPS <= 0 || config.Timeout != 0 {
				t.Errorf("user agent %q, QPS %v, timeout %v", config.UserAgent, config.QPS, config.Timeout)
			}
		})
	}
}

func TestAnswerTimeout(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begins" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-time.After(limit + limit/2):
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "the rest")
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &answerTimeout{next: http.DefaultTransport, limit: limit}}
	for _, tt := range []struct {
		name, path string
		want       error
	}{
		{"no answer", "/", errNoAnswer},
		{"no answer, and a watch by name only", "/?watch=false", errNoAnswer},
		{"a silent watch", "/?watch=true", nil},
		{"an answer that has begun", "/begins", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp, err := client.Get(server.URL + tt.path)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error: %v, want %v", err, tt.want)
			}
			if err != nil {
				return
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "the rest" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}
