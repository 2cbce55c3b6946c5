package caddymodule

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// run has a configuration with an empty directory of clusters be the running one.
func run(t *testing.T) caddy.Context {
	t.Helper()
	dir, err := json.Marshal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	if err := caddy.Load([]byte(`{
		"admin": {"disabled": true, "config": {"persist": false}},
		"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
		"apps": {"proxyauth": {"directory": `+string(dir)+`}}
	}`), true); err != nil {
		t.Fatal(err)
	}
	return caddy.ActiveContext()
}

// SIG-5: three paths, and nothing else.
func TestHealth(t *testing.T) {
	module, err := run(t).LoadModuleByID("http.handlers.proxyauth_health", nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/livez":    {http.StatusOK, "ok\n"},
		"/readyz":   {http.StatusOK, "ok\n"},
		"/metrics":  {http.StatusOK, "proxyauth_build_info{"},
		"/":         {http.StatusNotFound, "not found\n"},
		"/livez/":   {http.StatusNotFound, "not found\n"},
		"/clusters": {http.StatusNotFound, "not found\n"},
	} {
		t.Run(path, func(t *testing.T) {
			w := httptest.NewRecorder()
			if err := module.(*Health).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil), nil); err != nil {
				t.Fatal(err)
			}
			if w.Code != want.code || !strings.Contains(w.Body.String(), want.body) {
				t.Errorf("%d %.100q, want %d with %q", w.Code, w.Body, want.code, want.body)
			}
			if path != "/metrics" && w.Header().Get("Cache-Control") != "no-store" {
				t.Error("the answer may be cached")
			}
		})
	}
}
