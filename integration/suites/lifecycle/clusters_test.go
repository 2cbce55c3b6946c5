package lifecycle

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// STREAM-1: what ends the streams of a cluster, and of no other.
func TestSTREAM1Ends(t *testing.T) {
	t.Parallel()
	up, elsewhere := upstream(t), upstream(t)
	no := false
	tests := []struct {
		name   string
		change func(t *testing.T, px *proxy.Proxy, file, cluster string)
		code   int
	}{
		{"deleted", func(t *testing.T, px *proxy.Proxy, file, _ string) {
			if err := px.RemoveManifest(file); err != nil {
				t.Fatal(err)
			}
		}, 404},
		{"disabled", func(t *testing.T, px *proxy.Proxy, file, name string) {
			px.MustWrite(t, file, cluster(name, up, 1, func(s *v1.ProxyKubeApiSpec) { s.Enabled = &no })...)
		}, 404},
		{"moved to another address", func(t *testing.T, px *proxy.Proxy, file, name string) {
			px.MustWrite(t, file, cluster(name, elsewhere, 1, nil)...)
		}, 200},
		{"moved below a path", func(t *testing.T, px *proxy.Proxy, file, name string) {
			moved := proxy.FrontProxyCluster(namespace, name, up.URL+"/base", up.ServerCA, "t:", proxy.Authenticator(provider()))
			px.MustWrite(t, file, moved, proxy.FrontProxySecret(namespace, name, up.URL+"/base", up.FrontProxy(1)))
		}, 200},
	}
	manifests := map[string]string{"bystander.yaml": manifest("bystander", up, 1, nil)}
	for n := range tests {
		manifests[fmt.Sprintf("c%d.yaml", n)] = manifest(fmt.Sprintf("c%d", n), up, 1, nil)
	}
	px := proxy.Start(t, proxy.Options{Manifests: manifests})
	px.MustServe(t, namespace, "bystander")
	others := openStreams(t, px, "bystander")
	for n, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			name := fmt.Sprintf("c%d", n)
			px.MustServe(t, namespace, name)
			streams := openStreams(t, px, name)
			late := openWatchH1(t, px, target(name, logPath+"1h"), "a long response on HTTP/1.1")
			lateH2 := openWatchH2(t, px, target(name, logPath+"1h"), "a long response on HTTP/2")
			short := openWatchH1(t, px, target(name, logPath+"2s"), "a response of 2 s")

			start := time.Now()
			tc.change(t, px, name+".yaml", name)
			allEnded(t, streams, streamEnd)
			took := time.Since(start)
			// What is no stream has until then, and must not look complete.
			for _, r := range []*reading{late, lateH2} {
				mustBreak(t, r, time.Until(start.Add(streamEnd+time.Second)))
			}
			t.Logf("the streams ended after %s, the long responses were cut after %s", took.Round(time.Millisecond), late.at.Sub(start).Round(time.Millisecond))
			mustComplete(t, short, patience)
			allAlive(t, others)

			waitCode(t, px, name, tc.code)
		})
	}
	allAlive(t, others)
}

// mustBreak waits for an end that no client takes for a complete response.
func mustBreak(t *testing.T, r *reading, within time.Duration) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(within):
		t.Errorf("%s goes on", r)
		return
	}
	if _, _, err := r.state(); err == nil || err.Error() == "EOF" {
		t.Errorf("%s was cut and looks complete", r)
	}
}

// mustComplete waits for the whole of a response that ends by itself.
func mustComplete(t *testing.T, r *reading, within time.Duration) {
	t.Helper()
	r.ended(t, within)
	if got := r.lastLine(); got != lastLine {
		t.Errorf("%s ends with %q", r, got)
	}
}

// STREAM-1: requests that are on their way when their cluster goes are answered
// as a whole: as if they had come before, or after.
func TestSTREAM1TruncatesNoAnswer(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO"})
	url := px.URL + target("cluster-a", getPath)
	var served atomic.Int64
	l := startLoad(t, px, 16, func(ctx context.Context, client *http.Client, _ int) error {
		res, body, err := readAnswer(ctx, client, url)
		switch {
		case err != nil:
			return err
		case res.StatusCode == http.StatusOK && strings.Contains(string(body), `"t:alice"`):
			served.Add(1)
			return nil
		case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body), "was removed"):
			return nil
		}
		return fmt.Errorf("answered %s: %s", res.Status, body)
	})
	l.pause.Store(int64(time.Millisecond))
	for range 12 {
		px.MustWrite(t, "a.yaml", cluster("cluster-a", up, 1, nil)...)
		waitCode(t, px, "cluster-a", 200)
		if err := px.RemoveManifest("a.yaml"); err != nil {
			t.Fatal(err)
		}
		waitCode(t, px, "cluster-a", 404)
	}
	l.stop(t)
	if served.Load() == 0 {
		t.Error("no request was served")
	}
	t.Logf("%d requests, %d of them served, none truncated", l.answered.Load(), served.Load())
}

// STREAM-1: every other change of a cluster leaves its streams, those that
// close it too.
func TestSTREAM1Leaves(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	generation := px.MustServe(t, namespace, "cluster-a").Status.ObservedGeneration
	streams := openStreams(t, px, "cluster-a")

	other, group := "u:", "nobody"
	object := func(change func(*v1.ProxyKubeApiSpec)) any { return cluster("cluster-a", up, 1, change)[0] }
	secret := cluster("cluster-a", up, 1, nil)[1]
	ready := func(s *proxy.ClusterStatus) bool { return s.Ready() == "True/Serving" }
	refused := func(s *proxy.ClusterStatus) bool { return s.Condition("UpdateRefused") != nil }
	renewed := func(*proxy.ClusterStatus) bool {
		get(t, px, "cluster-a")
		all := up.Requests()
		return all[len(all)-1].Serial.Int64() == 2
	}
	for _, tc := range []struct {
		name    string
		objects []any
		// accepted says that this is a new version of the object; otherwise
		// seen says what else the status shows when the change has arrived.
		accepted bool
		seen     func(*proxy.ClusterStatus) bool
		code     int
		text     string
	}{
		{"prefixes", []any{object(func(s *v1.ProxyKubeApiSpec) {
			s.UpstreamAuth.UserPrefix, s.UpstreamAuth.GroupPrefix = &other, &other
		}), secret}, true, nil, 200, `"u:alice"`},
		{"required group", []any{object(func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = &group }), secret}, true, nil, 403, "not a member"},
		{"authenticators", []any{object(func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig.JWT[0].Issuer.Audiences = []string{"another-audience"}
		}), secret}, true, nil, 401, ""},
		{"mode", []any{object(func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.Mode = v1.ModePassthrough }), secret}, true, nil, 401, ""},
		{"front-proxy Secret deleted", []any{object(nil)}, true, nil, 503, "ClientCertMissing"},
		{"back again", []any{object(nil), secret}, false, ready, 200, `"t:alice"`},
		{"an extra key that is not allowed", []any{object(func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig.JWT[0].ClaimMappings.Extra = []v1.ExtraMapping{{Key: "kubernetes.io/x", ValueExpression: "'x'"}}
		}), secret}, true, nil, 503, "InvalidSpec"},
		{"CA of the apiserver", []any{object(func(s *v1.ProxyKubeApiSpec) {
			s.Cert = proxy.Cluster(namespace, "x", up.URL, provider().CA).Spec.Cert
		}), secret}, true, nil, 503, "UpstreamTrustUnknown"},
		{"server name", []any{object(func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = "localhost" }), secret}, true, nil, 200, `"t:alice"`},
		{"certificate renewed", []any{object(func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = "localhost" }), cluster("cluster-a", up, 2, nil)[1]}, false, renewed, 200, `"t:alice"`},
		{"an object that admission refuses", []any{object(func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.UserPrefix = nil }), secret}, false, refused, 200, `"t:alice"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			px.MustWrite(t, "a.yaml", tc.objects...)
			if tc.accepted {
				generation++
				tc.seen = func(s *proxy.ClusterStatus) bool { return s.Status.ObservedGeneration == generation }
			}
			px.MustCluster(t, namespace, "cluster-a", tc.seen)
			eventually(t, "a request is answered as the change wants it", patience, func() error {
				if a := get(t, px, "cluster-a"); a.Code != tc.code || !strings.Contains(a.Body, tc.text) {
					return fmt.Errorf("it is answered %d %s, want %d %s", a.Code, a.Body, tc.code, tc.text)
				}
				return nil
			})
			allAlive(t, streams)
		})
	}
}

// STREAM-1: the end of the token that opened a stream leaves it, of every kind.
func TestSTREAM1EndOfTheToken(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")
	expires := time.Now().Add(10 * time.Second)
	short := session{px, provider().Token(oidc.Alice, map[string]any{"exp": expires.Unix()})}
	var streams []stream
	for _, kind := range allKinds {
		streams = append(streams, short.open(t, "cluster-a", kind))
	}
	eventually(t, "the token expires", patience, func() error {
		a := rawclient.Do(t, px.Host, px.CA.Pool(), rawclient.Request("GET", target("cluster-a", getPath), px.Host, "Authorization: Bearer "+short.bearer))
		if a.Code != 401 {
			return fmt.Errorf("it is answered %d", a.Code)
		}
		return nil
	})
	allAlive(t, streams)
}
