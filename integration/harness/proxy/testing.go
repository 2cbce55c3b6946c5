package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
)

// Start is New for a test, which ends with it. A race report or a panic of the
// proxy fails the test.
func Start(tb testing.TB, o Options) *Proxy {
	tb.Helper()
	p, err := New(tb.Context(), tb.TempDir(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if _, err := p.end(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("last lines of the proxy:\n%s", p.lastLines())
		}
	})
	return p
}

// Close ends a proxy that no test ends: its exit code must be 0, and its output
// without a race report or a panic.
func (p *Proxy) Close() error {
	code, err := p.end()
	if code != 0 {
		err = errors.Join(err, fmt.Errorf("the proxy ended with code %d", code))
	}
	return err
}

// end stops the proxy and returns its exit code, with an error for a race
// report or a panic.
func (p *Proxy) end() (code int, err error) {
	code = p.Stop()
	if socket, ok := strings.CutPrefix(p.Admin, "unix/"); ok {
		os.RemoveAll(filepath.Dir(socket))
	}
	output := p.Output()
	known, listErr := knownRaces(racesFile)
	err = errors.Join(err, listErr)
	for _, report := range unknownRaces(output, known) {
		err = errors.Join(err, fmt.Errorf("the proxy wrote a race report that races.txt does not list:\n%s", report))
	}
	for _, sign := range []string{"panic: ", "fatal error: "} {
		if strings.Contains(output, sign) {
			err = errors.Join(err, fmt.Errorf("the proxy wrote %q:\n%s", sign, output))
		}
	}
	return code, err
}

// wait is how long the Must functions wait.
const wait = 30 * time.Second

// MustServe waits until a cluster is Ready.
func (p *Proxy) MustServe(tb testing.TB, namespace, name string) *ClusterStatus {
	tb.Helper()
	return p.MustCluster(tb, namespace, name, func(s *ClusterStatus) bool { return strings.HasPrefix(s.Ready(), "True/") })
}

// MustCluster waits until the status of a cluster is as wanted.
func (p *Proxy) MustCluster(tb testing.TB, namespace, name string, want func(*ClusterStatus) bool) *ClusterStatus {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), wait)
	defer cancel()
	s, err := p.WaitCluster(ctx, namespace, name, want)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// MustAudit waits for an audit line.
func (p *Proxy) MustAudit(tb testing.TB, match func(Entry) bool) Entry {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), wait)
	defer cancel()
	e, err := p.WaitAudit(ctx, match)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// MustMetrics is Metrics for a test.
func (p *Proxy) MustMetrics(tb testing.TB) string {
	tb.Helper()
	page, err := p.Metrics(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return page
}

// MustCounter is the value of one series, `name{label="value"}`, 0 when absent.
func (p *Proxy) MustCounter(tb testing.TB, series string) int {
	tb.Helper()
	for line := range strings.Lines(p.MustMetrics(tb)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				tb.Fatalf("%s: %v", series, err)
			}
			return int(value)
		}
	}
	return 0
}

// MustWrite is WriteManifest of objects for a test.
func (p *Proxy) MustWrite(tb testing.TB, file string, objects ...any) {
	tb.Helper()
	if err := p.WriteManifest(file, Manifests(objects...)); err != nil {
		tb.Fatal(err)
	}
}

// Kubectl is a kubectl for a cluster behind the proxy, with a fresh home.
func (p *Proxy) Kubectl(tb testing.TB, namespace, name, token string) kube.Kubectl {
	tb.Helper()
	dir := tb.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := p.WriteKubeconfig(file, namespace, name, token); err != nil {
		tb.Fatal(err)
	}
	return kube.Kubectl{Kubeconfig: file, Home: filepath.Join(dir, "home"), Namespaces: p.options.Namespaces}
}
