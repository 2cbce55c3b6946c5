package lifecycle

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/onceworld"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// patience is how long a test waits for what has no bound of its own, on a
// machine that does other things too.
const patience = 30 * time.Second

// provider is the OpenID provider of all tests here.
var provider = sync.OnceValue(func() *oidc.Provider {
	p, err := oidc.New(oidc.Options{})
	if err != nil {
		panic(err)
	}
	return p
})

// apiServer is a real kube-apiserver.
type apiServer struct{ *kube.APIServer }

// real is two apiservers with authorities of their own, for all tests here.
var real = onceworld.New(func(ctx context.Context, s *onceworld.Setup) ([]*apiServer, error) {
	etcd, err := kube.StartEtcd(ctx, s.Dir)
	if err != nil {
		return nil, err
	}
	s.AtEnd(etcd.Stop)
	var all []*apiServer
	for range 2 {
		a, err := kube.StartAPIServer(ctx, s.Dir, kube.Options{Etcd: etcd})
		if err != nil {
			return nil, err
		}
		s.AtEnd(a.Stop)
		all = append(all, &apiServer{a})
	}
	return all, nil
})

func TestMain(m *testing.M) { os.Exit(real.Run(m)) }

const namespace = "team-a"

// streamEnd is what ending the streams of a cluster may take (STREAM-1).
const streamEnd = 5 * time.Second

// upstream stands in for an apiserver: watches tick, exec echoes, /log is a
// long response that ends by itself, everything else says who is asking.
func upstream(t *testing.T) *rawserver.Server {
	t.Helper()
	return rawserver.Start(t, rawserver.Options{Handler: apiserver})
}

// Paths of the apiserver in these tests.
const (
	watchPath     = "/api/v1/namespaces/default/configmaps?watch=true"
	watchListPath = "/api/v1/namespaces/default/configmaps?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true"
	floodPath     = "/api/v1/namespaces/default/configmaps?labelSelector=flood&watch=true"
	followPath    = "/api/v1/namespaces/default/pods/p/log?follow=true"
	forwardPath   = "/api/v1/namespaces/default/pods/p/portforward"
	quietPath     = "/api/v1/namespaces/default/configmaps?timeoutSeconds=900&watch=true"
	execPath      = "/api/v1/namespaces/default/pods/p/exec?command=cat&stdin=true&stdout=true"
	logPath       = "/api/v1/namespaces/default/pods/p/log?for="
	getPath       = "/api/v1/namespaces/default/configmaps"
	lastLine      = "the last line\n"
)

func apiserver(w *rawserver.Writer, r *rawserver.Request) {
	_, query, _ := strings.Cut(r.Target, "?")
	switch {
	case r.Header.Get("Upgrade") != "":
		rawserver.Echo(w, r)
	case isNumbered(r.Target):
		interval := 20 * time.Millisecond
		if strings.HasPrefix(query, "timeoutSeconds") {
			interval = time.Second
		}
		contentType := "application/json"
		if strings.HasSuffix(query, "follow=true") {
			contentType = "text/plain"
		}
		w.Header(http.StatusOK, rawserver.Field{Name: "Content-Type", Value: contentType})
		for flood := strings.Contains(query, "flood"); flood; {
			flood = w.Write(append(bytes.Repeat([]byte("x"), 64<<10), '\n'))
		}
		for n := 0; pause(w, interval); n++ {
			if !w.Write(fmt.Appendf(nil, "{\"type\":\"MODIFIED\",\"n\":%d}\n", n)) {
				return
			}
		}
	case strings.HasPrefix(query, "for="):
		d, _ := time.ParseDuration(strings.TrimPrefix(query, "for="))
		w.Header(http.StatusOK, rawserver.Field{Name: "Content-Type", Value: "text/plain"})
		for end := time.Now().Add(d); time.Now().Before(end); {
			if !pause(w, 50*time.Millisecond) || !w.Write([]byte("a line\n")) {
				return
			}
		}
		w.Write([]byte(lastLine))
	default:
		rawserver.WhoAmI(w, r)
	}
}

func pause(w *rawserver.Writer, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.Context().Done():
		return false
	}
}

// cluster is the objects of a FrontProxy cluster at up with a certificate of
// that serial number; change may alter the object.
func cluster(name string, up *rawserver.Server, serial int64, change func(*v1.ProxyKubeApiSpec)) []any {
	c := proxy.FrontProxyCluster(namespace, name, up.URL, up.ServerCA, "t:", proxy.Authenticator(provider()))
	if change != nil {
		change(&c.Spec)
	}
	return []any{c, proxy.FrontProxySecret(namespace, name, up.URL, up.FrontProxy(serial))}
}

// manifest is cluster as the content of a file.
func manifest(name string, up *rawserver.Server, serial int64, change func(*v1.ProxyKubeApiSpec)) string {
	return proxy.Manifests(cluster(name, up, serial, change)...)
}

// token is a good one for alice; a new one each minute.
func token() string {
	tokens.Lock()
	defer tokens.Unlock()
	if time.Since(tokens.at) > time.Minute {
		tokens.alice, tokens.at = provider().Token(oidc.Alice, nil), time.Now()
	}
	return tokens.alice
}

var tokens struct {
	sync.Mutex
	alice string
	at    time.Time
}

func target(name, path string) string { return "/clusters/" + namespace + "/" + name + path }

// get sends one request on a connection of its own.
func get(t *testing.T, px *proxy.Proxy, name string) rawclient.Answer {
	t.Helper()
	return rawclient.Do(t, px.Host, px.CA.Pool(), rawclient.Request("GET", target(name, getPath), px.Host, "Authorization: Bearer "+token()))
}

// waitCode waits until a cluster answers with that code.
func waitCode(t *testing.T, px *proxy.Proxy, name string, code int) rawclient.Answer {
	t.Helper()
	var a rawclient.Answer
	eventually(t, fmt.Sprintf("%s answers %d", name, code), patience, func() error {
		if a = get(t, px, name); a.Code != code {
			return fmt.Errorf("it answers %d: %s", a.Code, a.Body)
		}
		return nil
	})
	return a
}

// eventually asks until f returns nil and says how long that took.
func eventually(t *testing.T, what string, within time.Duration, f func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := f()
		if err == nil {
			return time.Since(start)
		}
		if time.Since(start) > within {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		time.Sleep(15 * time.Millisecond)
	}
}

// caddyfile is the configuration that the proxy runs.
func caddyfile(t *testing.T, px *proxy.Proxy) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(px.Value("dir"), "Caddyfile"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// write puts a file into a directory by rename.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	tmp := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(tmp, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// countGoroutines counts those of the proxy that have a function in their
// stack, all for an empty name.
func countGoroutines(t *testing.T, px *proxy.Proxy, function string) int {
	t.Helper()
	code, profile, err := px.AdminDo(t.Context(), http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
	if err != nil || code != http.StatusOK {
		t.Fatalf("asking for the goroutines: %d, %v", code, err)
	}
	total := 0
	for group := range strings.SplitSeq(profile, "\n\n") {
		lines := strings.Split(strings.TrimSpace(group), "\n")
		if strings.HasPrefix(lines[0], "goroutine profile:") {
			lines = lines[1:]
		}
		if len(lines) == 0 || !strings.Contains(strings.Join(lines, "\n"), function) {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(lines[0], "%d @", &n); err == nil {
			total += n
		}
	}
	return total
}

func reload(t *testing.T, px *proxy.Proxy, change func(*proxy.Options)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := px.Reload(ctx, change); err != nil {
		t.Fatal(err)
	}
}
