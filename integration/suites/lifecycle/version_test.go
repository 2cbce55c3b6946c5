package lifecycle

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// The command, the metric and Caddy's build-info tell the version that runs.
func TestVersion(t *testing.T) {
	t.Parallel()
	px := proxy.Start(t, proxy.Options{})
	output := func(args ...string) string {
		r, err := px.Command(t.Context(), args...)
		if err != nil || r.ExitCode != 0 {
			t.Fatalf("caddy %q: %v, exit code %d\n%s", args, err, r.ExitCode, r.Stderr)
		}
		return r.Stdout
	}
	var v struct{ Version, Caddy string }
	if err := json.Unmarshal([]byte(output("proxyauth", "version", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version == "" || !strings.HasPrefix(v.Caddy, "v2.") {
		t.Errorf("%+v", v)
	}
	if text := output("proxyauth", "version"); !strings.HasPrefix(text, v.Version+" (Caddy "+v.Caddy+", go1.") {
		t.Errorf("%q, want the version %s", text, v.Version)
	}
	if metrics := px.MustMetrics(t); !strings.Contains(metrics, `proxyauth_build_info{version="`+v.Version+`"} 1`) {
		t.Errorf("the metrics do not have the version %s", v.Version)
	}
	if info := output("build-info"); !strings.Contains(info, "github.com/proxyauthk8s/caddy-proxyauthk8s\t") {
		t.Errorf("caddy build-info does not have the module:\n%.500s", info)
	}
}
