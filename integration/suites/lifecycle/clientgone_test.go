package lifecycle

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/jsonlines"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// incomplete is the warning of reverse_proxy about an answer without its end.
const incomplete = "aborting with incomplete response"

// warnings are the lines at level WARN or above, but for those of Caddy's start.
func warnings(t *testing.T, px *proxy.Proxy) (found []string) {
	t.Helper()
	all, err := px.Log()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if level := e.Text("level"); (level == "warn" || level == "error") && strings.HasPrefix(e.Text("logger"), "http.") {
			found = append(found, fmt.Sprint(e.Text("logger"), ": ", e.Text("msg"), " ", e["error"]))
		}
	}
	return found
}

// A client that ends its watch, or leaves in the middle of a list, is no fault: the log
// has no warning, and the access log all its fields. An apiserver that breaks
// off in the middle is one.
func TestClientsThatLeaveAreNoFault(t *testing.T) {
	t.Parallel()
	cut := make(chan struct{})
	up := rawserver.Start(t, rawserver.Options{Handler: func(w *rawserver.Writer, r *rawserver.Request) {
		if !strings.HasSuffix(r.Target, "/events") {
			apiserver(w, r)
			return
		}
		w.Header(http.StatusOK, rawserver.Field{Name: "Content-Type", Value: "application/json"})
		for n := 0; pause(w, 5*time.Millisecond); n++ {
			w.Write([]byte(strings.Repeat("x", 100)))
			select {
			case <-cut:
				w.Abort()
				return
			default:
			}
		}
	}})
	px := proxy.Start(t, proxy.Options{
		Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)},
		Site:      "log {\n\toutput file %{dir}/access.json {\n\t\troll_disabled\n\t}\n}\nlog_append cluster {http.proxyauth.cluster}\n",
	})
	px.MustServe(t, namespace, "cluster-a")
	access := jsonlines.Open[proxy.Entry](filepath.Join(px.Value("dir"), "access.json"))
	const endless = "/api/v1/namespaces/default/events"
	get := func(ctx context.Context, protocol, path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, px.URL+target("cluster-a", path), nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token())
		res, err := px.Client(protocol).Do(r)
		if err != nil {
			return nil, err
		}
		_, err = io.CopyN(io.Discard, res.Body, 50)
		return res, err
	}
	left := 0
	for _, protocol := range []string{"h1", "h2"} {
		for _, path := range []string{watchPath, quietPath, endless} {
			for range 3 {
				ctx, leave := context.WithCancel(t.Context())
				res, err := get(ctx, protocol, path)
				leave()
				if err != nil {
					t.Fatalf("%s on %s: %v", path, protocol, err)
				}
				res.Body.Close()
				left++
			}
		}
	}
	eventually(t, "the access log of clients that left", patience, func() error {
		all, err := access.All()
		if err != nil {
			return err
		}
		for _, entry := range all {
			if entry.Text("cluster") != "team-a/cluster-a" || entry["status"] != float64(http.StatusOK) {
				return fmt.Errorf("a line without what log_append adds: %v", entry)
			}
		}
		if len(all) != left {
			return fmt.Errorf("%d of %d lines", len(all), left)
		}
		return nil
	})
	if found := warnings(t, px); found != nil {
		t.Errorf("%d clients left, and the log warns of %d:\n%s", left, len(found), strings.Join(found, "\n"))
	}

	for _, protocol := range []string{"h1", "h2"} {
		res, err := get(t.Context(), protocol, endless)
		if err != nil {
			t.Fatal(err)
		}
		cut <- struct{}{}
		if n, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Errorf("%s: an answer that broke off looks complete after %d bytes", protocol, n)
		}
		res.Body.Close()
	}
	if found := warnings(t, px); len(found) != 2 || !strings.Contains(found[0], incomplete) {
		t.Errorf("the apiserver broke off twice, and the log says:\n%s", strings.Join(found, "\n"))
	}
}
