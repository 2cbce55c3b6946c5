package serving

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// startRuntime starts a runtime whose clusters come from a directory.
func startRuntime(t *testing.T, p *Process, directory string) *Runtime {
	t.Helper()
	rt, err := p.Acquire(Options{
		Directory: directory, Namespace: "proxyauth", AllowedModes: []v1.UpstreamMode{v1.ModePassthrough},
		AudienceValidation: "enforce", ProbeInterval: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Release(rt) })
	if err := rt.Start(); err != nil {
		t.Fatal(err)
	}
	return rt
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

// openWatch opens a stream of a running cluster, as the transport does.
func openWatch(t *testing.T, rt *Runtime, name string) *http.Response {
	t.Helper()
	c := rt.clusters()[k8swatch.Key{Namespace: "team-a", Name: name}]
	if c == nil || c.Relay.Streams == nil {
		t.Fatalf("no cluster %s is running", name)
	}
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	res := &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Header: http.Header{"Content-Type": {"application/json"}}, Body: r}
	go func() {
		for {
			if _, err := io.WriteString(w, "{}\n"); err != nil {
				return
			}
		}
	}()
	c.Relay.Streams.Track(res, upstream.StreamOptions{Kind: upstream.Watch})
	return res
}

func mustFlow(t *testing.T, res *http.Response) {
	t.Helper()
	if _, err := io.CopyN(io.Discard, res.Body, 1<<10); err != nil {
		t.Errorf("the stream ended: %v", err)
	}
}

func mustEnd(t *testing.T, res *http.Response) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, res.Body)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the watch did not end cleanly: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the stream goes on")
	}
}

// A configuration can still fail when its apps have started (its remote admin
// endpoint, its config loader): the runtime before it serves again, with the
// streams that it had.
func TestRuntimeServesAgainAfterFailure(t *testing.T) {
	p := newTestProcess()
	serving := startRuntime(t, p, directoryOf(t, "a"))
	serving.TakeOver()
	other := startRuntime(t, p, directoryOf(t, "b"))
	other.TakeOver()
	if p.Current() != other {
		t.Error("the runtime that took over does not serve")
	}
	p.Release(other)
	if p.Current() != serving {
		t.Fatal("the runtime before it does not serve again")
	}
	waitFlow(t, serving, "a")
}

// waitFlow waits until new streams of a cluster do not end at once.
func waitFlow(t *testing.T, rt *Runtime, name string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		res := openWatch(t, rt, name)
		if n, err := io.CopyN(io.Discard, res.Body, 1<<10); err == nil {
			return
		} else if !errors.Is(err, io.EOF) || time.Now().After(deadline) {
			t.Fatalf("new streams end at once (%d bytes): %v", n, err)
		}
	}
}

// While a configuration starts, the runtime in force follows its own clusters:
// that must not end what the new one has prepared.
func TestTakeOverAfterAChange(t *testing.T) {
	p := newTestProcess()
	serving := startRuntime(t, p, directoryOf(t, "a"))
	serving.TakeOver()
	dir := t.TempDir()
	writeCluster(t, dir, "a", "https://127.0.0.1:2")
	other := startRuntime(t, p, dir)
	p.streams.endMissing(serving)
	other.TakeOver()
	waitFlow(t, other, "a")
}
