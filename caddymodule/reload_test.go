package caddymodule

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// load runs a configuration whose clusters come from a directory and whose
// server listens on an address; an address in use makes its start fail.
func load(directory, listen string) error {
	config, err := json.Marshal(map[string]any{
		"admin":   map[string]any{"disabled": true, "config": map[string]any{"persist": false}},
		"logging": map[string]any{"logs": map[string]any{"default": map[string]any{"writer": map[string]any{"output": "discard"}}}},
		"apps": map[string]any{
			"proxyauth": map[string]any{"directory": directory},
			"http": map[string]any{"servers": map[string]any{"site": map[string]any{
				"listen": []string{listen},
				"routes": []any{map[string]any{"handle": []any{map[string]any{"handler": "proxyauth"}}}},
			}}},
		},
	})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

func mustLoad(t *testing.T, directory, listen string) {
	t.Helper()
	if err := load(directory, listen); err != nil {
		t.Fatal(err)
	}
}

// directoryOf makes a directory with these clusters of namespace team-a.
func directoryOf(t *testing.T, clusters ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range clusters {
		writeCluster(t, dir, name, "https://127.0.0.1:1")
	}
	return dir
}

func writeCluster(t *testing.T, dir, name, url string) {
	t.Helper()
	manifest := fmt.Sprintf("{apiVersion: weebo.si.rs/v1, kind: ProxyKubeApi, metadata: {name: %s, namespace: team-a}, spec: {service: {ExternalService: {url: '%s'}}, auth_config: {disable_validation: true}}}", name, url)
	if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
}

// openStream begins a request to a running cluster, as the transport does. Its
// context ends when the streams of the cluster end.
func openStream(t *testing.T, name string) context.Context {
	t.Helper()
	c := process.Current().Snapshot().Clusters[k8swatch.Key{Namespace: "team-a", Name: name}]
	if c == nil || c.Relay.Streams == nil {
		t.Fatalf("no cluster %s is running", name)
	}
	ctx, done := c.Relay.Streams.Begin(t.Context(), "")
	t.Cleanup(done)
	return ctx
}

func mustGoOn(t *testing.T, stream context.Context) {
	t.Helper()
	if stream.Err() != nil {
		t.Errorf("the stream ended: %v", context.Cause(stream))
	}
}

func mustEnd(t *testing.T, stream context.Context) {
	t.Helper()
	select {
	case <-stream.Done():
	case <-time.After(20 * time.Second):
		t.Error("the stream goes on")
	}
}

// STREAM-1: a configuration that fails to start changes nothing, whichever of
// its apps had already started: neither the streams nor the clusters of the
// one that goes on serving.
func TestFailedReload(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	mustLoad(t, directoryOf(t, "a"), "127.0.0.1:0")
	serving := process.Current()
	before := openStream(t, "a")
	mustGoOn(t, before)

	other := directoryOf(t, "b")
	// Caddy starts apps in random order.
	for range 12 {
		if err := load(other, busy.Addr().String()); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Fatalf("the address is in use, but Caddy says: %v", err)
		}
		if process.Current() != serving {
			t.Fatal("the runtime that serves is not the current one")
		}
	}
	mustGoOn(t, before)
	after := openStream(t, "a")
	mustGoOn(t, after)
	if n := process.Runtimes(); n != 1 {
		t.Errorf("%d runtimes are in use, want 1", n)
	}

	mustLoad(t, other, "127.0.0.1:0")
	mustEnd(t, before)
	mustEnd(t, after)
	if n := process.Runtimes(); n != 1 || process.Current() == serving {
		t.Errorf("%d runtimes are in use, want the new one alone", n)
	}
}

// The log of what outlives a configuration goes to the configuration in force,
// also after one that failed to start.
func TestFailedReloadKeepsTheLog(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	dir := directoryOf(t, "a")
	mustLoad(t, dir, "127.0.0.1:0")
	want := process.Log.Current()
	for range 8 {
		if err := load(dir, busy.Addr().String()); err == nil {
			t.Fatal("the address is in use, but Caddy starts")
		}
		if process.Log.Current() != want {
			t.Fatal("the log goes to a configuration that is not in force")
		}
	}
}
