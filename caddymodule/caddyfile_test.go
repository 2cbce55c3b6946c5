package caddymodule

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/google/go-cmp/cmp"
)

var updateGolden = flag.Bool("update", false, "write what the adapter gives into the golden files")

const goldenSeparator = "----------\n"

// Each *.caddyfiletest is a Caddyfile, a line of dashes, and the JSON it
// adapts to or the error it gives.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(content), goldenSeparator)
			if !ok && !*updateGolden {
				t.Fatal("no line of dashes")
			}
			got := adapt(t, input)
			if *updateGolden {
				if err := os.WriteFile(file, []byte(input+goldenSeparator+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// adapt returns the indented JSON of a Caddyfile, or the error.
func adapt(t *testing.T, input string) string {
	t.Helper()
	out, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err.Error() + "\n"
	}
	var text strings.Builder
	for _, w := range warnings {
		text.WriteString("warning: " + w.String() + "\n")
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, out, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return text.String() + indented.String() + "\n"
}

// CONF-2: whatever the order in the file, the health endpoints come before
// authentication, that before the relay, and all before abort.
func TestCONF2DirectiveOrder(t *testing.T) {
	got := adapt(t, "{\n\tproxyauth {\n\t\tdirectory /etc/proxyauth\n\t}\n}\n"+
		"k8s.example.com {\n\tabort\n\tproxyauth {\n\t\tcluster last/a\n\t}\n\tproxyauth_authenticate {\n\t\tcluster first/a\n\t}\n\tproxyauth_health\n}\n")
	at := -1
	for _, part := range []string{`"handler": "proxyauth_health"`, `"cluster": "first/a"`, `"cluster": "last/a"`, `"abort": true`} {
		next := strings.Index(got, part)
		if next < at || next < 0 {
			t.Errorf("%s is not in its place in\n%s", part, got)
		}
		at = next
	}
}

// CONF-5: the modules, by the names that a JSON configuration gives them.
func TestCONF5Modules(t *testing.T) {
	for _, id := range []string{
		"proxyauth", "http.handlers.proxyauth", "http.handlers.proxyauth_health", "http.reverse_proxy.upstreams.proxyauth",
		"http.reverse_proxy.transport.proxyauth", "tls.get_certificate.proxyauth", "caddy.storage.proxyauth", "admin.api.proxyauth",
	} {
		if m, err := caddy.GetModule(id); err != nil || m.New == nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	command, ok := caddycmd.Commands()["proxyauth"]
	if !ok || command.CobraFunc == nil {
		t.Errorf("the command proxyauth: %+v", command)
	}
}

// CONF-1: the directive is nothing but the composed form.
func TestDirectiveEqualsComposedForm(t *testing.T) {
	const options = "{\n\tproxyauth {\n\t\tdirectory /etc/proxyauth\n\t}\n}\n"
	for name, tc := range map[string]struct{ sugar, composed string }{
		"path form": {
			sugar: "proxyauth /clusters/*",
			composed: `route /clusters/* {
		proxyauth_authenticate
		reverse_proxy {
			dynamic proxyauth
			transport proxyauth
			stream_close_delay 24h
			flush_interval -1
		}
	}`,
		},
		"host form": {
			sugar: "proxyauth {\n\t\tcluster team-a/{labels.3}\n\t\tstream_close_delay 1h\n\t}",
			composed: `route {
		proxyauth_authenticate {
			cluster team-a/{labels.3}
		}
		reverse_proxy {
			dynamic proxyauth
			transport proxyauth
			stream_close_delay 1h
			flush_interval -1
		}
	}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			sugar := adapt(t, options+"k8s.example.com {\n\t"+tc.sugar+"\n}\n")
			composed := adapt(t, options+"k8s.example.com {\n\t"+tc.composed+"\n}\n")
			if diff := cmp.Diff(composed, sugar); diff != "" {
				t.Errorf("-composed +directive:\n%s", diff)
			}
			if !strings.Contains(sugar, `"handler": "proxyauth"`) {
				t.Errorf("no handler in\n%s", sugar)
			}
		})
	}
}
