package charts

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// caddy runs a command of the program on the files of a rendered ConfigMap, as a
// pod would but with a kubeconfig.
func caddy(t *testing.T, command string, files map[string]string) (stdout []byte, messages string) {
	t.Helper()
	binary, err := proxy.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range files {
		text = strings.ReplaceAll(text, "/etc/caddy/", dir+"/")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{command, "--config", filepath.Join(dir, "caddy.json")}
	if files["caddy.json"] == "" {
		args = []string{command, "--config", filepath.Join(dir, "Caddyfile"), "--adapter", "caddyfile"}
	}
	// No server listens there: validation asks none.
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, kube.Access{Server: "https://127.0.0.1:1", Token: "x"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append(process.ThriftyCommand(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+namespace, "POD_NAME=proxy-0")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("caddy %q: %v\n%s\n%s", args, err, stderr.String(), files)
	}
	return bytes.ReplaceAll(out.Bytes(), []byte(dir+"/"), []byte("/etc/caddy/")), stderr.String()
}

// site is what is looked at in a server of the adapted configuration.
type site struct {
	Listen   []string
	Protocol []string `json:"protocols"`
	Logs     *json.RawMessage
	Routes   []struct {
		Match []struct{ Host []string }
	}
}

// The Caddyfile of each set is formatted, valid, and says what its values say.
func TestCaddyfile(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := one[*corev1.ConfigMap](t, render(t, chart(t), "--values", values)).Data
			adapted, messages := caddy(t, "adapt", files)
			if strings.Contains(messages, `"level":"warn"`) {
				t.Errorf("caddy adapt: %s\n%s", messages, files)
			}
			// Redirects make Caddy listen on port 80, which the pod may not do.
			_, messages = caddy(t, "validate", files)
			if redirects := strings.Contains(messages, "enabling automatic HTTP->HTTPS redirects"); redirects != (name == "acme") {
				t.Errorf("redirects %v: %s", redirects, messages)
			}
			checkAdapted(t, name, adapted)
		})
	}
}

// A configuration in JSON takes the Caddyfile's place, without an adapter: here
// that of the Caddyfile itself.
func TestJSONConfiguration(t *testing.T) {
	t.Parallel()
	acme := valueSets(t)["acme"]
	made := one[*corev1.ConfigMap](t, render(t, chart(t), "--values", acme)).Data
	adapted, _ := caddy(t, "adapt", made)
	file := filepath.Join(t.TempDir(), "caddy.json")
	if err := os.WriteFile(file, adapted, 0o600); err != nil {
		t.Fatal(err)
	}
	objects := render(t, chart(t), "--values", acme, "--set-file", "caddyfile="+file)
	got := one[*corev1.ConfigMap](t, objects).Data
	want := map[string]string{"caddy.json": strings.TrimSpace(string(adapted)), "acme-ca-root.pem": made["acme-ca-root.pem"]}
	got["caddy.json"] = strings.TrimSpace(got["caddy.json"])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	caddy(t, "validate", got)
	command := one[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0].Command
	if want := []string{"/usr/bin/caddy", "run", "--config", "/etc/caddy/caddy.json"}; !slices.Equal(command, want) {
		t.Errorf("command %q", command)
	}
}

func checkAdapted(t *testing.T, set string, adapted []byte) {
	t.Helper()
	var config struct {
		Admin struct {
			Listen string
			Config struct{ Persist *bool }
		}
		Storage map[string]any
		Apps    struct {
			TLS struct {
				Automation struct {
					Policies []struct {
						Issuers []struct {
							CA    string
							Roots []string `json:"trusted_roots_pem_files"`
						}
					}
				}
			}
			HTTP struct {
				GracePeriod   time.Duration `json:"grace_period"`
				ShutdownDelay time.Duration `json:"shutdown_delay"`
				Servers       map[string]*site
			}
			Proxyauth map[string]any
		}
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	if config.Admin.Listen != "unix//run/proxyauth/admin.sock|0600" || config.Admin.Config.Persist == nil || *config.Admin.Config.Persist {
		t.Errorf("admin %+v", config.Admin)
	}
	if config.Apps.HTTP.ShutdownDelay != 5*time.Second || config.Apps.HTTP.GracePeriod != 30*time.Second {
		t.Errorf("shutdown after %s and %s", config.Apps.HTTP.ShutdownDelay, config.Apps.HTTP.GracePeriod)
	}
	listen := map[string]*site{}
	for _, s := range config.Apps.HTTP.Servers {
		listen[strings.Join(s.Listen, " ")] = s
	}
	port := ":8443"
	if set == "off" {
		port = ":8080"
	}
	if diff := cmp.Diff([]string{port, ":9180"}, slices.Sorted(maps.Keys(listen))); diff != "" {
		t.Fatal(diff)
	}
	users := listen[port]
	if hosts := users.Routes[len(users.Routes)-1].Match; hosts != nil {
		t.Errorf("the last site is for %v alone", hosts)
	}
	if logged := users.Logs != nil; logged != (set != "off" && set != "caddyfile") {
		t.Errorf("access log: %v", logged)
	}
	if logs := listen[":9180"].Logs; logs != nil {
		t.Error("probes of the kubelet are logged")
	}
	want := map[string]map[string]any{
		"default": {
			"kubernetes": map[string]any{"leader_election": "proxy-proxyauthk8s"}, "allowed_modes": []any{"Passthrough"},
			"impersonation": "strip",
		},
		"least": {
			"kubernetes":    map[string]any{"leader_election": "proxy-proxyauthk8s", "watch_namespaces": []any{"team-a", "team-b"}},
			"allowed_modes": []any{"Passthrough", "FrontProxy"}, "impersonation": "strip",
			"reference_namespaces": []any{"shared-ca"}, "public_url": "https://k8s.example.com",
		},
		"every": {
			"kubernetes": map[string]any{"leader_election": "front"}, "allowed_modes": []any{"Passthrough"},
			"audience_validation": "warn", "impersonation": "deny", "disable_validation": "off",
			"denied_targets": []any{"loopback", "link-local", "unspecified", "fd00:ec2::/32", "*.corp.example.com"}, "public_url": "https://{name}.{namespace}.k8s.example.com",
			"probe_interval": "30s", "token_cache_ttl": "45s", "upstream_client_ttl": "5m0s",
		},
	}
	if _, written := config.Apps.Proxyauth["audience_validation"]; written != (set == "every") {
		t.Errorf("audience_validation is written: %v, and wins over the environment", written)
	}
	if want := want[set]; want != nil {
		if diff := cmp.Diff(want, config.Apps.Proxyauth); diff != "" {
			t.Error(diff)
		}
	}
	var storage map[string]any
	if set == "acme" {
		policies := config.Apps.TLS.Automation.Policies
		if len(policies) != 1 || len(policies[0].Issuers) != 1 || policies[0].Issuers[0].CA != "https://acme.example.com/directory" ||
			!slices.Equal(policies[0].Issuers[0].Roots, []string{"/etc/caddy/acme-ca-root.pem"}) {
			t.Errorf("certificates are obtained by %+v", policies)
		}
		storage = map[string]any{"module": "proxyauth", "namespace": storageNamespace}
	}
	if diff := cmp.Diff(storage, config.Storage); diff != "" {
		t.Error(diff)
	}
}
