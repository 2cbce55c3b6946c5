package lifecycle

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/jsonlines"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Section 15: options come from the environment and from files. The access log
// has what the proxy found out, whatever names a provider gives: a name begins no
// line of its own and passes for no second group (SIG-3).
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	own := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(own, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		names = "http.auth.user.id http.auth.user.groups http.proxyauth.cluster http.proxyauth.mode http.proxyauth.upstream_user http.proxyauth.reason"
	)
	site := "log {\n\toutput file %{dir}/access.log {\n\t\troll_disabled\n\t}\n\tformat console\n}\n" +
		"log second {\n\toutput file %{dir}/access.json {\n\t\troll_disabled\n\t}\n}\n"
	for _, name := range strings.Fields(names) {
		site += fmt.Sprintf("log_append %s {%s}\n", name[strings.LastIndexByte(name, '.')+1:], name)
	}
	passthrough := func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth = nil }
	frontProxy := cluster("fronted", up, 1, nil)
	secret := frontProxy[1].(interface{ SetNamespace(string) })
	secret.SetNamespace("from-a-file")
	px := proxy.Start(t, proxy.Options{
		Manifests:    map[string]string{"a.yaml": manifest("plain", up, 1, passthrough), "b.yaml": proxy.Manifests(frontProxy...)},
		AllowedModes: []string{"Passthrough", "{env.FURTHER_MODE}"},
		Settings:     "namespace {file." + own + "}\nprobe_interval {env.INTERVAL}",
		Site:         site,
		Env:          []string{"FURTHER_MODE=FrontProxy", "INTERVAL=5"},
	})
	px.MustServe(t, namespace, "plain")
	px.MustServe(t, namespace, "fronted") // so mode and namespace were replaced

	const forged = "alice\n{\"level\":\"info\",\"user_id\":\"root\"}\u2028\x1b[2J100%"
	hostile := provider().Token(oidc.Alice, map[string]any{"preferred_username": forged, "groups": []string{"team", "x,system:masters", "a\r\nb"}})
	for _, request := range []struct {
		path, bearer string
		code         int
	}{
		{target("plain", getPath), hostile, http.StatusUnauthorized}, // by the apiserver, which knows no bearer
		{target("fronted", getPath), token(), http.StatusOK},
		{target("fronted", getPath), hostile, http.StatusForbidden},
		{target("absent", getPath), token(), http.StatusNotFound},
		{target("plain", getPath), "no-token-at-all", http.StatusUnauthorized},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.URL+request.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+request.bearer)
		res, err := px.Client("h1").Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Errorf("%s: %v", request.path, err)
		}
		res.Body.Close()
		if res.StatusCode != request.code {
			t.Errorf("%s: %d, want %d", request.path, res.StatusCode, request.code)
		}
	}
	want := []string{
		`alice%0A%7B%22level%22:%22info%22,%22user_id%22:%22root%22%7D%E2%80%A8%1B[2J100%25 team,x%2Csystem:masters,a%0D%0Ab team-a/plain Passthrough  `,
		"alice team-a,a%2Cb team-a/fronted FrontProxy t:alice ",
		"  team-a/fronted FrontProxy  upstream_identity_refused",
		"     unknown_cluster",
		"  team-a/plain Passthrough  unauthenticated",
	}
	access := jsonlines.Open[proxy.Entry](filepath.Join(px.Value("dir"), "access.json"))
	eventually(t, "the access log", patience, func() error {
		all, err := access.All()
		if err != nil {
			return err
		}
		var got []string
		for _, entry := range all {
			got = append(got, strings.Join([]string{
				entry.Text("id"), entry.Text("groups"), entry.Text("cluster"), entry.Text("mode"), entry.Text("upstream_user"), entry.Text("reason"),
			}, " "))
		}
		// A line is written after its answer, so the next request may be first.
		slices.Sort(got)
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
	console, err := os.ReadFile(filepath.Join(px.Value("dir"), "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(console), "\n"); lines != len(want) {
		t.Errorf("%d lines for %d requests:\n%s", lines, len(want), console)
	}
	if all := px.Everything() + string(console); strings.Contains(all, hostile) {
		t.Error("a log holds a token")
	}

	// Events: the two clusters and the leader, and later what is removed.
	heard := func(name, data string) {
		t.Helper()
		eventually(t, name+" "+data, patience, func() error {
			_, err := px.WaitLog(t.Context(), func(e proxy.Entry) bool {
				return e.Text("logger") == "events" && e.Text("name") == name && fmt.Sprint(e["data"]) == data
			})
			return err
		})
	}
	heard("proxyauth.leader", "map[leading:true]")
	heard("proxyauth.cluster_ready", "map[cluster:plain namespace:team-a reason:Serving]")
	heard("proxyauth.cluster_ready", "map[cluster:fronted namespace:team-a reason:Serving]")
	if err := px.RemoveManifest("a.yaml"); err != nil {
		t.Fatal(err)
	}
	heard("proxyauth.cluster_closed", "map[cluster:plain namespace:team-a reason:Removed]")
}
