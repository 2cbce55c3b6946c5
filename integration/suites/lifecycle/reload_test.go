package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// STREAM-1: streams outlive reloads, those that change nothing and those that
// change an option of the runtime or of the handler, and the runtimes and
// goroutines of the old configurations do not.
func TestSTREAM1Reload(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")

	streams := openStreams(t, px, "cluster-a")
	both := []string{"Passthrough", "FrontProxy"}
	changes := []struct {
		name string
		set  func(*proxy.Options)
		// code is what a new request gets.
		code int
	}{
		{"nothing", nil, 200},
		{"impersonation", func(o *proxy.Options) { o.Settings = "impersonation deny" }, 200},
		{"token_cache_ttl", func(o *proxy.Options) { o.Settings = "token_cache_ttl 5s" }, 200},
		{"allowed_modes closes the cluster", func(o *proxy.Options) { o.AllowedModes = []string{"Passthrough"} }, 503},
		{"allowed_modes opens it", func(o *proxy.Options) { o.AllowedModes = both }, 200},
	}
	for n := range 20 {
		change := changes[n%len(changes)]
		reload(t, px, change.set)
		allAlive(t, streams)
		if a := get(t, px, "cluster-a"); a.Code != change.code {
			t.Errorf("after reload %d (%s) a request is answered %d %s, want %d", n+1, change.name, a.Code, a.Body, change.code)
		}
		// Each configuration gets streams that the next ones must keep.
		if change.code == 200 {
			streams = append(streams, openStream(t, px, "cluster-a", allKinds[n%len(allKinds)]))
		}
	}

	// The clusters change without a reload, in the newest runtime.
	px.MustWrite(t, "b.yaml", cluster("cluster-b", up, 1, nil)...)
	waitCode(t, px, "cluster-b", 200)
	allAlive(t, streams)

	if n := countGoroutines(t, px, "serving.(*Runtime).compileChanges"); n != 1 {
		t.Errorf("%d runtimes are running, want 1", n)
	}
	with := countGoroutines(t, px, "")
	closeAll(streams)
	// One more reload lets the last old server go.
	reload(t, px, nil)
	eventually(t, "all goroutines of old configurations end", patience, func() error {
		for _, f := range []string{"reverseproxy.(*Handler).handleUpgradeResponse", "upstream.(*watch).Read", "directory.(*Source).Run"} {
			want := 0
			if strings.Contains(f, "Run") {
				want = 1
			}
			if n := countGoroutines(t, px, f); n != want {
				return fmt.Errorf("%d goroutines in %s, want %d", n, f, want)
			}
		}
		return nil
	})
	base := countGoroutines(t, px, "")
	for range 5 {
		reload(t, px, func(o *proxy.Options) { o.Settings = "token_cache_ttl 6s" })
		reload(t, px, func(o *proxy.Options) { o.Settings = "" })
	}
	eventually(t, "ten more reloads leave no goroutines", patience, func() error {
		if n := countGoroutines(t, px, ""); n > base+3 {
			return fmt.Errorf("%d goroutines, %d before", n, base)
		}
		return nil
	})
	t.Logf("goroutines: %d with %d streams over 20 reloads, %d without, %d after 10 more reloads", with, len(streams), base, countGoroutines(t, px, ""))
}

// STREAM-1: the clusters of a reload that changes the directory are those of
// the new one, and so are the streams: what is in both goes on, what is not in
// the new one ends.
func TestSTREAM1ReloadOfTheDirectory(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"a.yaml": manifest("cluster-a", up, 1, nil), "b.yaml": manifest("cluster-b", up, 1, nil),
	}})
	px.MustServe(t, namespace, "cluster-a")
	px.MustServe(t, namespace, "cluster-b")
	a, b := openStreams(t, px, "cluster-a"), openStreams(t, px, "cluster-b")

	other := t.TempDir()
	write(t, other, "all.yaml", manifest("cluster-a", up, 1, nil)+manifest("cluster-c", up, 1, nil))
	reload(t, px, func(o *proxy.Options) {
		o.Caddyfile = strings.Replace(caddyfile(t, px), px.Directory, other, 1)
	})
	allEnded(t, b, streamEnd)
	allAlive(t, a)
	for name, code := range map[string]int{"cluster-a": 200, "cluster-b": 404, "cluster-c": 200} {
		if got := get(t, px, name); got.Code != code {
			t.Errorf("%s answers %d %s, want %d", name, got.Code, got.Body, code)
		}
	}
	// The directory of before is not followed any more.
	if err := px.RemoveManifest("a.yaml"); err != nil {
		t.Fatal(err)
	}
	write(t, other, "all.yaml", manifest("cluster-a", up, 1, nil))
	waitCode(t, px, "cluster-c", 404)
	allAlive(t, a)
}

// Requests that come while the configuration changes are answered: by the old
// runtime or by the new one, none is lost between them. The first request of a new
// connection may find it closed, and is sent again (docs/streams.md).
func TestRequestsDuringReloads(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var answered, again atomic.Int64
	for n := range 8 {
		client := px.Client([]string{"h1", "h2"}[n%2])
		defer client.CloseIdleConnections()
		wg.Go(func() {
			for ctx.Err() == nil {
				var kept bool
				traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
					GetConn: func(string) { kept = false }, // again when net/http repeats a request
					GotConn: func(i httptrace.GotConnInfo) { kept = i.Reused },
				})
				err := ask(traced, client, px.URL+target("cluster-a", getPath))
				switch {
				case err == nil:
					answered.Add(1)
				case ctx.Err() != nil:
				case !kept && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
					again.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	for n := range 10 {
		reload(t, px, func(o *proxy.Options) { o.Settings = fmt.Sprintf("token_cache_ttl %ds", 30+n%2) })
	}
	cancel()
	wg.Wait()
	t.Logf("%d requests were answered during 10 reloads, %d had to be sent again", answered.Load(), again.Load())
	if again.Load() > 10 {
		t.Errorf("%d requests found their new connection closed", again.Load())
	}
}

// A request that waits for the keys of its issuer when the configuration or
// its cluster changes is served all the same.
func TestRequestWaitingForKeysDuringAChange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, px *proxy.Proxy, spec v1.ProxyKubeApi, secret any)
	}{
		{"reload with another option", func(t *testing.T, px *proxy.Proxy, _ v1.ProxyKubeApi, _ any) {
			reload(t, px, func(o *proxy.Options) { o.Settings = "token_cache_ttl 7s" })
		}},
		{"another issuer", func(t *testing.T, px *proxy.Proxy, c v1.ProxyKubeApi, secret any) {
			c.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{proxy.Authenticator(provider())}}
			px.MustWrite(t, "a.yaml", c, secret)
			px.MustCluster(t, namespace, "cluster-a", func(s *proxy.ClusterStatus) bool { return s.Status.ObservedGeneration == 2 })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			up, idp := upstream(t), oidc.Start(t, oidc.Options{})
			object := proxy.FrontProxyCluster(namespace, "cluster-a", up.URL, up.ServerCA, "t:", proxy.Authenticator(idp))
			secret := proxy.FrontProxySecret(namespace, "cluster-a", up.URL, up.FrontProxy(1))
			idp.SetFault(oidc.Keys, oidc.Slow(5*time.Second))
			px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": proxy.Manifests(object, secret)}})
			px.MustServe(t, namespace, "cluster-a")
			answered := make(chan rawclient.Answer, 1)
			go func() {
				answered <- rawclient.Do(t, px.Host, px.CA.Pool(), rawclient.Request("GET", target("cluster-a", getPath), px.Host, "Authorization: Bearer "+idp.Token(oidc.Alice, nil)))
			}()
			eventually(t, "the keys are asked for", patience, func() error {
				if idp.Calls(oidc.Keys) == 0 {
					return errors.New("not yet")
				}
				return nil
			})
			tc.change(t, px, *object, secret)
			select {
			case a := <-answered:
				if a.Code != 200 {
					t.Errorf("the request is answered %d %s", a.Code, a.Body)
				}
			case <-time.After(patience):
				t.Error("the request is not answered")
			}
		})
	}
}

// readAnswer sends a GET with the token of alice, and reads the answer to its end.
func readAnswer(ctx context.Context, client *http.Client, url string) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token())
	start := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("after %s: %w", time.Since(start), err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("answered %s, but reading the body: %w", res.Status, err)
	}
	return res, body, nil
}

// ask sends a GET that must be answered 200 as alice.
func ask(ctx context.Context, client *http.Client, url string) error {
	res, body, err := readAnswer(ctx, client, url)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || !strings.Contains(string(body), "t:alice") {
		return fmt.Errorf("answered %s: %s", res.Status, body)
	}
	return nil
}
