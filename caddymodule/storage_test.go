package caddymodule

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
)

const someKubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
	"contexts": [{"name": "c", "context": {"cluster": "c"}}],
	"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}`

// CONF-4: the namespace is the proxy's own with -caddy appended, as the app
// knows it.
func TestStorageTarget(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(someKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ storage, app, env, want string }{
		"default":       {"", "", "", "proxyauth-caddy"},
		"environment":   {"", "", "edge", "edge-caddy"},
		"global option": {"", `, "namespace": "own"`, "edge", "own-caddy"},
		"its own":       {`"namespace": "certs", `, `, "namespace": "own"`, "edge", "certs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", tc.env)
			config := fmt.Sprintf(`{
				"admin": {"disabled": true, "config": {"persist": false}},
				"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
				"storage": {"module": "proxyauth", %s"kubeconfig": %q},
				"apps": {"proxyauth": {"directory": %q%s}}
			}`, tc.storage, kubeconfig, t.TempDir(), tc.app)
			if err := caddy.Load([]byte(config), true); err != nil {
				t.Fatal(err)
			}
			storage := caddy.ActiveContext().Storage()
			if _, err := storage.Load(t.Context(), ""); err == nil {
				t.Fatal("the root was loaded")
			}
			// The API is not there; that it is asked says where. A time that is
			// up between two attempts does not say it: then it is asked again.
			want := "/namespaces/" + tc.want + "/secrets/"
			var err error
			for range 20 {
				if err = loadOnce(t.Context(), storage); err != nil && strings.Contains(err.Error(), want) {
					break
				}
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want a request to namespace %s", err, tc.want)
			}
			if got := storage.(fmt.Stringer).String(); got != "Secrets in namespace "+tc.want {
				t.Errorf("%q", got)
			}
		})
	}
}

func loadOnce(ctx context.Context, storage certmagic.Storage) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := storage.Load(ctx, "key")
	return err
}

// Without a cluster the configuration is valid, and the first use says what is
// missing.
func TestStorageWithoutCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	module, err := ctx.LoadModuleByID("caddy.storage.proxyauth", json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	storage, err := module.(caddy.StorageConverter).CertMagicStorage()
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.Store(t.Context(), "key", nil); err == nil || !strings.Contains(err.Error(), "no kubeconfig is given") {
		t.Errorf("%v", err)
	}
	if _, err := ctx.LoadModuleByID("caddy.storage.proxyauth", json.RawMessage(`{"namespace": "No Name"}`)); err == nil {
		t.Error("a namespace that is none was accepted")
	}
}

// A kubeconfig that is named and cannot be used is an error before anything
// runs, as with the source, and not at the first certificate.
func TestStorageWithBadKubeconfig(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct{ text, want string }{
		"none":       {"", "reading the kubeconfig: "},
		"no YAML":    {"{", "the kubeconfig"},
		"no context": {`{"apiVersion": "v1", "kind": "Config"}`, "the kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			if tc.text != "" {
				if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			config := fmt.Sprintf(`{"admin": {"disabled": true, "config": {"persist": false}}, "storage": {"module": "proxyauth", "kubeconfig": %q}}`, path)
			var parsed caddy.Config
			if err := json.Unmarshal([]byte(config), &parsed); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(&parsed); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want an error with %q", err, tc.want)
			}
		})
	}
}
