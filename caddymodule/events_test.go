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
)

func init() {
	caddy.RegisterModule(eventWriter{})
}

// eventWriter is a handler of events that appends them to a file.
type eventWriter struct {
	File string `json:"file"`
}

func (eventWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.test_writer", New: func() caddy.Module { return new(eventWriter) }}
}

func (w *eventWriter) Handle(_ context.Context, e caddy.Event) error {
	file, err := os.OpenFile(w.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintln(file, e.Name(), e.Origin().CaddyModule().ID, e.Data)
	return err
}

// loadWithEvents runs a configuration that writes the events of the product into
// a file.
func loadWithEvents(t *testing.T, directory, namespace, file string) {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"admin":   map[string]any{"disabled": true, "config": map[string]any{"persist": false}},
		"logging": map[string]any{"logs": map[string]any{"default": map[string]any{"writer": map[string]any{"output": "discard"}}}},
		"apps": map[string]any{
			"proxyauth": map[string]any{"directory": directory, "namespace": namespace},
			"events": map[string]any{"subscriptions": []any{map[string]any{
				"modules":  []string{"proxyauth"},
				"handlers": []any{map[string]any{"handler": "test_writer", "file": file}},
			}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		t.Fatal(err)
	}
}

func mustHear(t *testing.T, file string, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		content, _ := os.ReadFile(file)
		got := strings.TrimSpace(string(content))
		if got == strings.Join(want, "\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("heard\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
}

// Caddy's events app hears of clusters and of the leader: the subscribers of the
// configuration in force, and after a reload what has changed.
func TestEventsReachCaddy(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	dir, files := directoryOf(t, "a"), t.TempDir()
	first, second := filepath.Join(files, "first"), filepath.Join(files, "second")
	loadWithEvents(t, dir, "one", first)
	const ready = "proxyauth.cluster_ready proxyauth map[cluster:%s namespace:team-a reason:Serving]"
	all := []string{"proxyauth.leader proxyauth map[leading:true]", fmt.Sprintf(ready, "a")}
	mustHear(t, first, all...)
	writeCluster(t, dir, "b", "https://127.0.0.1:1")
	all = append(all, fmt.Sprintf(ready, "b"))
	mustHear(t, first, all...)

	loadWithEvents(t, dir, "two", second)
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	mustHear(t, second, "proxyauth.cluster_closed proxyauth map[cluster:a namespace:team-a reason:Removed]")
	mustHear(t, first, all...)
}
