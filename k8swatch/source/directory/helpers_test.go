package directory

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// TestMain runs more tests at the same time than there are processors, for they
// wait for files and compute little.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var errNoEvents = fmt.Errorf("no events on this file system")

func noEvents() (*fsnotify.Watcher, error) { return nil, errNoEvents }

// dirCluster is a ProxyKubeApi as a file holds it; url is its version.
func dirCluster(name, url string) string {
	return fmt.Sprintf("---\napiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\nmetadata: {name: %s, namespace: team-a}\nspec: {service: {ExternalService: {url: '%s'}}}\n", name, url)
}

func dirSecret(name, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: team-a}\nstringData: {key: '%s'}\n", name, value)
}

func dirConfigMap(name, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: team-a}\ndata: {key: '%s'}\n", name, value)
}

func dirKey(name string) k8swatch.Key { return k8swatch.Key{Namespace: "team-a", Name: name} }

// dirRig is a Directory whose clock the test turns.
type dirRig struct {
	*Source
	t    testing.TB
	now  time.Time
	logs *observer.ObservedLogs
}

// newDirRig makes a directory with files and reads it for the first time.
func newDirRig(t testing.TB, files map[string]string) *dirRig {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	d, err := New(t.TempDir(), zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	rig := &dirRig{d, t, time.Now(), logs}
	for name, text := range files {
		rig.write(name, text)
	}
	names, err := listDirectory(rig.path)
	if err != nil {
		t.Fatal(err)
	}
	rig.lookAt(names, rig.now, true)
	rig.apply(rig.now, true)
	return rig
}

func (r *dirRig) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.path, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *dirRig) remove(name string) {
	r.t.Helper()
	if err := os.RemoveAll(filepath.Join(r.path, name)); err != nil {
		r.t.Fatal(err)
	}
}

// look looks at the directory after a while and says whether objects changed.
func (r *dirRig) look(after time.Duration) bool {
	r.now = r.now.Add(after)
	return r.scan(r.now, true) && r.apply(r.now, false)
}

// settle looks until whatever happened counts.
func (r *dirRig) settle() bool {
	changed := r.look(0)
	return r.look(settleGone) || changed
}

// rewrite writes a file and lets it count.
func (r *dirRig) rewrite(name, text string) bool {
	r.t.Helper()
	r.write(name, text)
	return r.settle()
}

// url is the version of a cluster in force, "" when there is none.
func (r *dirRig) url(name string) string { return dirURL(r.Source, name) }

func dirURL(d *Source, name string) string {
	object := d.Object(dirKey(name))
	if object == nil || object.Invalid != "" {
		return ""
	}
	return object.ProxyKubeApi.Spec.Service.ExternalService.URL
}

// refusedUpdate is the UpdateRefused of a cluster.
func (r *dirRig) refusedUpdate(name string) string {
	r.t.Helper()
	object := r.Object(dirKey(name))
	if object == nil {
		r.t.Fatalf("%s is gone", name)
	}
	return object.UpdateRefused
}

func (r *dirRig) secret(name string) string {
	secret, err := r.Secret("team-a", name)
	if err != nil {
		return ""
	}
	return string(secret.Data["key"])
}

// logged counts log lines that hold a text, in the message or in a field.
func (r *dirRig) logged(text string) int { return dirLogged(r.logs, text) }

func dirLogged(logs *observer.ObservedLogs, text string) int {
	count := 0
	for _, entry := range logs.All() {
		if strings.Contains(fmt.Sprint(entry.Message, entry.ContextMap()), text) {
			count++
		}
	}
	return count
}

// dirRun is a Directory that runs.
type dirRun struct {
	*Source
	t    *testing.T
	logs *observer.ObservedLogs
	done chan error

	mu       sync.Mutex
	versions []map[string]string // the clusters in force after each change
}

// runDirectory runs a source over path until the test ends, or stop is called.
func runDirectory(t *testing.T, path string, prepare ...func(*Source)) (*dirRun, func()) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	d, err := New(path, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prepare {
		p(d)
	}
	run := &dirRun{Source: d, t: t, logs: logs, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan struct{})
	go func() {
		run.done <- d.Run(ctx, func(...k8swatch.Change) {
			run.note()
			select {
			case <-first:
			default:
				close(first)
			}
		})
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-run.done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-first:
	case err := <-run.done:
		t.Fatalf("Run = %v before the first list", err)
	}
	return run, stop
}

func (r *dirRun) note() {
	r.mu.Lock()
	defer r.mu.Unlock()
	version := map[string]string{}
	for _, key := range r.Keys() {
		version[key.Name] = dirURL(r.Source, key.Name)
	}
	r.versions = append(r.versions, version)
}

// history is the clusters in force after each change so far.
func (r *dirRun) history() []map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]map[string]string(nil), r.versions...)
}

// await waits until a cluster has a version, and returns how long it took.
func (r *dirRun) await(name, url string) time.Duration {
	r.t.Helper()
	start := time.Now()
	dirEventually(r.t, fmt.Sprintf("%s at %q", name, url), func() bool { return dirURL(r.Source, name) == url })
	return time.Since(start)
}

func dirEventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func dirMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
