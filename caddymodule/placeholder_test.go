package caddymodule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/go-cmp/cmp"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func writeFile(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Section 15: {env.X} and {file.X} are replaced in every kind of option, whether
// it comes from a Caddyfile or from JSON.
func TestOptionPlaceholders(t *testing.T) {
	t.Setenv("SAMPLE_TEXT", "")
	t.Setenv("PH_TEXT", "b")
	t.Setenv("PH_SWITCH", "off")
	t.Setenv("PH_TEAM", "team-z")
	t.Setenv("PH_SECONDS", "90")
	file := writeFile(t, "y\n")
	var fromFile sample
	input := "sample {\n text {env.PH_TEXT}\n switch {env.PH_SWITCH}\n set {env.PH_TEAM} {file." + file + "} x-{env.PH_TEAM}\n duration {env.PH_SECONDS}\n}"
	if err := unmarshalBlock(caddyfile.NewTestDispenser(input), fromFile.table()); err != nil {
		t.Fatal(err)
	}
	fromJSON := sample{
		Text: "{env.PH_TEXT}", Switch: "{env.PH_SWITCH}", Duration: "{env.PH_SECONDS}",
		Set: []string{"{env.PH_TEAM}", "{file." + file + "}", "x-{env.PH_TEAM}"},
	}
	if diff := cmp.Diff(fromJSON, fromFile, cmp.AllowUnexported(sample{})); diff != "" {
		t.Errorf("the Caddyfile replaces before the configuration is loaded: -want +got:\n%s", diff)
	}
	if err := fillOptions(fromFile.table()); err != nil {
		t.Fatal(err)
	}
	got := sample{text: fromFile.text, on: fromFile.on, set: fromFile.set, span: fromFile.span}
	want := sample{text: "b", set: []string{"team-z", "x-team-z", "y"}, span: 90 * time.Second}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A placeholder for nothing, or for a wrong value, is an error that names the
// option and the placeholder. It never counts as an option that is absent.
func TestBadOptionPlaceholders(t *testing.T) {
	t.Setenv("PH_EMPTY", "")
	t.Setenv("PH_BLANK", " \n")
	t.Setenv("PH_WRONG", "c")
	t.Setenv("PH_SHORT", "10ms")
	t.Setenv("PH_NESTED", "{env.PH_WRONG}")
	blank := writeFile(t, "\n")
	long := writeFile(t, strings.Repeat("secret ", 1000))
	for name, tc := range map[string]struct {
		given sample
		want  []string
	}{
		"an empty variable":     {sample{Text: "{env.PH_EMPTY}"}, []string{"text: nothing to put in place of {env.PH_EMPTY}: it is empty"}},
		"a blank variable":      {sample{Text: "{env.PH_BLANK}"}, []string{"text: nothing to put in place of {env.PH_BLANK}: it is empty"}},
		"a missing variable":    {sample{Text: "{env.PH_NONE}"}, []string{"text: nothing to put in place of {env.PH_NONE}: the environment variable is not set"}},
		"one of several":        {sample{Set: []string{"a", "{env.PH_NONE}"}}, []string{"set: nothing to put in place of {env.PH_NONE}"}},
		"a missing file":        {sample{Text: "{file." + blank + "-none}"}, []string{"text: nothing to put in place of {file." + blank + "-none}: open", "no such file"}},
		"a blank file":          {sample{Text: "{file." + blank + "}"}, []string{"{file." + blank + "}: it is empty"}},
		"a wrong value":         {sample{Text: "{env.PH_WRONG}"}, []string{`text: unknown value "c": must be one of a, b (from {env.PH_WRONG})`}},
		"a wrong duration":      {sample{Duration: "{env.PH_WRONG}"}, []string{`duration: "c" is neither`}},
		"a short duration":      {sample{Duration: "{env.PH_SHORT}"}, []string{"duration: 10ms is shorter than 1s (from {env.PH_SHORT})"}},
		"a wrong name":          {sample{Set: []string{"A{env.PH_WRONG}"}}, []string{`namespace "Ac": `, "(from A{env.PH_WRONG})"}},
		"a placeholder in it":   {sample{Text: "{env.PH_NESTED}"}, []string{`text: unknown value "{env.PH_WRONG}"`}},
		"an unknown one beside": {sample{Text: "{env.PH_WRONG}{http.request.host}"}, []string{`text: unknown value "c{http.request.host}"`}},
		"another kind":          {sample{Text: "{system.hostname}"}, []string{`text: unknown value "{system.hostname}"`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := fillOptions(tc.given.table())
			for _, part := range tc.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%v, want an error with %s", err, part)
				}
			}
		})
	}
	given := sample{Text: "{file." + long + "}"}
	if err := fillOptions(given.table()); err == nil || len(err.Error()) > 300 {
		t.Errorf("an error shows the content of a file that was named by mistake: %v", err)
	}
}

// Every option of the app takes a placeholder, and its value counts, not its
// name: two configurations with another value are two runtimes.
func TestAppPlaceholders(t *testing.T) {
	clearEnv(t)
	dir := t.TempDir()
	t.Setenv("PH_DIR", dir)
	t.Setenv("PH_NS", "own")
	t.Setenv("PH_MODE", "FrontProxy")
	t.Setenv("PH_COOKIES", "on")
	t.Setenv("PH_TTL", "7s")
	t.Setenv("PH_URL", "k8s.example.com")
	app := &App{
		Directory: "{env.PH_DIR}", Namespace: "{env.PH_NS}", AllowedModes: []string{"Passthrough", "{env.PH_MODE}"},
		ProxyCookies: "{env.PH_COOKIES}", TokenCacheTTL: "{env.PH_TTL}", PublicURL: "https://{name}.{env.PH_URL}",
	}
	got, err := app.options()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ got, want any }{
		"directory":       {got.Directory, dir},
		"namespace":       {got.Namespace, "own"},
		"allowed_modes":   {got.AllowedModes, []v1.UpstreamMode{v1.ModeFrontProxy, v1.ModePassthrough}},
		"proxy_cookies":   {app.keepCookies, true},
		"token_cache_ttl": {got.TokenCacheTTL, 7 * time.Second},
		"public_url":      {app.PublicURL, "https://{name}.k8s.example.com"},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if _, err := (&App{Directory: "{env.PH_NONE}"}).options(); err == nil || !strings.Contains(err.Error(), "directory: nothing to put in place of {env.PH_NONE}") {
		t.Errorf("%v", err)
	}
	t.Setenv("PH_DIR", dir+"/none")
	if _, err := (&App{Directory: "{env.PH_DIR}"}).options(); err == nil || !strings.Contains(err.Error(), "reading the directory of clusters") {
		t.Errorf("%v", err)
	}
	if _, err := (&App{Kubernetes: &KubernetesSource{Kubeconfig: "{env.PH_DIR}/config"}}).options(); err == nil || !strings.Contains(err.Error(), dir+"/none/config") {
		t.Errorf("%v", err)
	}
}

// The other modules take the placeholders too; those of a request stay.
func TestModulePlaceholders(t *testing.T) {
	t.Setenv("PH_TEAM", "team-a")
	handler := &Handler{Cluster: "{env.PH_TEAM}/{http.request.host.labels.3}"}
	if err := fillOptions(handler.table()); err != nil || handler.Cluster != "team-a/{http.request.host.labels.3}" {
		t.Errorf("cluster %s, error %v", handler.Cluster, err)
	}
	storage := &Storage{Namespace: "{env.PH_TEAM}"}
	if err := storage.Validate(); err != nil || storage.Namespace != "team-a" {
		t.Errorf("storage in %s, error %v", storage.Namespace, err)
	}
	getter := new(CertGetter)
	if err := getter.UnmarshalCaddyfile(caddyfile.NewTestDispenser("proxyauth {env.PH_TEAM}-tls")); err != nil {
		t.Fatal(err)
	}
	if err := getter.option().fill(); err != nil || getter.Secret != "team-a-tls" {
		t.Errorf("secret %s, error %v", getter.Secret, err)
	}
	getter = &CertGetter{Secret: "{env.PH_NONE}"}
	if err := getter.Provision(caddy.Context{}); err == nil || !strings.Contains(err.Error(), "get_certificate proxyauth: nothing to put in place of {env.PH_NONE}") {
		t.Errorf("%v", err)
	}
}
