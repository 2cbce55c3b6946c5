package docs

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// onLoopback makes a Caddyfile of a page one that a test can run: on a port of
// 127.0.0.1, with a certificate of the test, the objects of the test, and the
// admin API and the log where the harness looks for them.
func onLoopback(t *testing.T, text, site string) string {
	t.Helper()
	const begin = "{\n"
	if !strings.HasPrefix(text, begin) || strings.Count(text, site+" {\n") != 1 {
		t.Fatalf("no Caddyfile with a site %s:\n%s", site, text)
	}
	global := begin + "\tadmin %{admin}\n\tpersist_config off\n\tauto_https disable_redirects\n"
	if !strings.Contains(text, "\n\tlog {") {
		global += "\tlog {\n\t\toutput file %{log}\n\t}\n"
	}
	text = global + strings.TrimPrefix(text, begin)
	text = strings.Replace(text, site+" {\n", "https://127.0.0.1:%{port} {\n\ttls %{cert} %{key}\n", 1)
	return strings.NewReplacer(
		etc+"/clusters.d", "%{directory}", "/var/log/proxyauth/caddy.log", "%{log}", "\n:443 {", "\n:%{port2} {", ":9180 {", ":%{health} {",
		"\tadmin unix//run/proxyauth/admin.sock|0600\n", "",
	).Replace(text)
}

// caddyfileOf is the first Caddyfile of a page.
func caddyfileOf(t *testing.T, page string) string {
	t.Helper()
	for _, s := range snippets(t, "caddyfile") {
		if s.page == page {
			return s.text
		}
	}
	t.Fatalf("%s has no Caddyfile", page)
	return ""
}

// openCluster is an object that relays every bearer to up.
func openCluster(up *rawserver.Server) string {
	object := proxy.Cluster("team-a", "prod", up.URL, up.ServerCA)
	object.Spec.AuthConfig = &v1.AuthConfig{DisableValidation: true}
	return proxy.Manifests(object)
}

// On a host the log, the audit and the access log are one file, whose lines are
// JSON, and no line holds a token. kubectl shows a whole answer with --raw.
func TestHostLogsGoToOneFile(t *testing.T) {
	t.Parallel()
	up := rawserver.Start(t, rawserver.Options{NoIdentity: true, Handler: func(w *rawserver.Writer, _ *rawserver.Request) {
		w.Respond(http.StatusOK, []byte("the answer of the apiserver"))
	}})
	px := proxy.Start(t, proxy.Options{
		Caddyfile: onLoopback(t, caddyfileOf(t, "docs/install-host.md"), "k8s.example.com"),
		Manifests: map[string]string{"prod.yaml": openCluster(up)},
	})
	px.MustServe(t, "team-a", "prod")
	const secret = "c2VjcmV0LXRva2Vu"
	const path = "/clusters/team-a/prod/api"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.URL+path+"?access_token="+secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", "session="+secret)
	r.Header.Set("Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io."+secret+", v5.channel.k8s.io")
	res, err := px.Client("h1").Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	for _, logger := range []string{proxy.AuditLogger, "http.log.access", "http"} {
		if _, err := px.WaitLog(t.Context(), func(e proxy.Entry) bool {
			return e.Text("logger") == logger || strings.HasPrefix(e.Text("logger"), logger+".log")
		}); err != nil {
			t.Errorf("the file has no line of %s: %v", logger, err)
		}
	}
	if strings.Contains(px.Everything(), secret) {
		t.Error("a line holds a token")
	}

	kubectl := px.Kubectl(t, "team-a", "prod", secret)
	for _, args := range [][]string{{"get", "--raw", "/api"}, {"--server", px.URL, "get", "--raw", path}} {
		if answer := kubectl.MustEnd(t, args...); answer.Stdout != "the answer of the apiserver" {
			t.Errorf("kubectl %q: %s%s", args, answer.Stdout, answer.Stderr)
		}
	}
}

// A kubectl exec with a command line of 40 kB passes on the minimal set-up of the
// README, where Caddy's own limit would answer an empty 431. Everything outside
// of /clusters/ is a 404, without a warning about gaps.
func TestReadmeTakesLongCommands(t *testing.T) {
	t.Parallel()
	up := rawserver.Start(t, rawserver.Options{Handler: rawserver.WhoAmI})
	px := proxy.Start(t, proxy.Options{
		Caddyfile: onLoopback(t, caddyfileOf(t, "README.md"), "k8s.example.com"),
		Manifests: map[string]string{"prod.yaml": openCluster(up)},
	})
	px.MustServe(t, "team-a", "prod")
	path := "/clusters/team-a/prod/api/v1/namespaces/default/pods/p/exec?stdin=true&command=" + url.QueryEscape(strings.Repeat("x", 40_000))
	for _, protocol := range []string{"h1", "h2"} {
		for path, want := range map[string]int{path: http.StatusUnauthorized, "/": http.StatusNotFound} { // the stand-in of an apiserver knows no bearer
			res, err := px.Client(protocol).Get(px.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != want || err != nil || len(body) == 0 {
				t.Errorf("%s %.40s: %d %q, error %v", protocol, path, res.StatusCode, body, err)
			}
		}
	}
	if strings.Contains(px.Everything(), "empty 200") {
		t.Error("the log warns of gaps")
	}

	err := px.Reload(t.Context(), func(o *proxy.Options) {
		o.Caddyfile = strings.Replace(o.Caddyfile, "\tproxyauth\n", "\tproxyauth /clusters/*\n", 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = px.WaitLog(t.Context(), func(e proxy.Entry) bool {
		return e.Text("level") == "warn" && e.Text("logger") == "proxyauth" && strings.Contains(e.Text("msg"), "empty 200")
	})
	if err != nil {
		t.Errorf("no warning of a site with gaps: %v", err)
	}
}

// In the path form `kubectl proxy` needs --append-server-path, as kubeconfig.md
// says: without it the path of the server is lost.
func TestKubectlProxy(t *testing.T) {
	t.Parallel()
	up := rawserver.Start(t, rawserver.Options{NoIdentity: true, Handler: func(w *rawserver.Writer, r *rawserver.Request) {
		w.Respond(http.StatusOK, []byte("asked for "+r.Target))
	}})
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"prod.yaml": openCluster(up)}})
	px.MustServe(t, "team-a", "prod")
	for want, args := range map[string][]string{
		"asked for /api/v1/pods":        {"proxy", "--port", "0", "--append-server-path"},
		"the proxy has no such cluster": {"proxy", "--port", "0"},
	} {
		kubectl := px.Kubectl(t, "team-a", "prod", "token").MustStart(t, args...)
		const serving = "Starting to serve on "
		address := strings.TrimPrefix(kubectl.MustLine(t, serving), serving)
		res, err := http.Get("http://" + address + "/api/v1/pods")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("kubectl %q: %q, error %v, want %q", args, body, err, want)
		}
		kubectl.Stop()
	}
}
