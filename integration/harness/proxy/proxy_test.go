package proxy_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// TestProxy runs the harness itself once around: the fixture of the field
// cases (IDP, UP, PX), a request, the log, a reload and the end.
func TestProxy(t *testing.T) {
	idp := oidc.Start(t, oidc.Options{})
	up := rawserver.Start(t, rawserver.Options{})
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"cluster-a.yaml": proxy.Manifests(
			proxy.FrontProxyCluster("team-a", "cluster-a", up.URL, up.ServerCA, "t:", proxy.Authenticator(idp)),
			proxy.FrontProxySecret("team-a", "cluster-a", up.URL, up.FrontProxy(1)),
		),
	}})
	px.MustServe(t, "team-a", "cluster-a")

	token := idp.Token(oidc.Alice, nil)
	t.Run("h1", func(t *testing.T) {
		up.Reset()
		a := rawclient.Do(t, px.Host, px.CA.Pool(), rawclient.Request("GET", "/clusters/team-a/cluster-a/api/v1/pods?limit=1", px.Host,
			"Authorization: Bearer "+token))
		if a.Code != http.StatusOK {
			t.Fatalf("%+v", a)
		}
		r := up.Only(t)
		if r.Target != "/api/v1/pods?limit=1" || r.Serial.Int64() != 1 {
			t.Errorf("%v, serial %s", r, r.Serial)
		}
		want := &rawserver.Identity{User: oidc.Alice, Groups: []string{"team-a", "a,b"}, Extra: map[string][]string{}}
		if diff := cmp.Diff(want, r.Identity.Unprefixed("t:")); diff != "" {
			t.Errorf("identity (-want +got):\n%s", diff)
		}
	})
	t.Run("h2", func(t *testing.T) {
		up.Reset()
		a := rawclient.MustDialH2(t, px.Host, px.CA.Pool()).Do(t, rawclient.Fields("GET", px.Host, "/clusters/team-a/cluster-a/api",
			rawclient.Field{Name: "authorization", Value: "Bearer " + token}), nil)
		if a.Code != http.StatusOK || up.Only(t).Identity == nil {
			t.Errorf("%+v", a)
		}
	})
	t.Run("log and audit", func(t *testing.T) {
		e := px.MustAudit(t, func(e proxy.Entry) bool { return e.Text("user") == oidc.Alice })
		if e.Text("upstream_user") != "t:alice" {
			t.Errorf("%v", e)
		}
		if strings.Contains(px.Everything(), token[len(token)-40:]) {
			t.Error("the token is in the log")
		}
	})
	t.Run("commands and reload", func(t *testing.T) {
		r, err := px.Command(t.Context(), "proxyauth", "status", "--address", px.Admin)
		if err != nil || r.ExitCode != 0 || !strings.Contains(r.Stdout, "cluster-a") {
			t.Errorf("%+v, %v", r, err)
		}
		if err := px.Reload(t.Context(), func(o *proxy.Options) { o.Site = "header X-Reloaded yes" }); err != nil {
			t.Fatal(err)
		}
		resp, err := px.Client("h2").Get(px.URL + "/clusters/team-a/none")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Reloaded") != "yes" {
			t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
		}
	})
	t.Run("a changed directory", func(t *testing.T) {
		if err := px.RemoveManifest("cluster-a.yaml"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for {
			list, err := px.Clusters(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	t.Run("the end", func(t *testing.T) {
		if code := px.Stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestRefusedConfiguration(t *testing.T) {
	if _, err := proxy.New(t.Context(), t.TempDir(), proxy.Options{Settings: "no_such_option"}); err == nil || !strings.Contains(err.Error(), "no_such_option") {
		t.Errorf("a wrong Caddyfile: %v", err)
	}
}

func TestAdminSocket(t *testing.T) {
	px := proxy.Start(t, proxy.Options{AdminSocket: true})
	socket := strings.TrimPrefix(px.Admin, "unix/")
	if info, err := os.Stat(socket); err != nil || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v, %v", info, err)
	}
	if err := px.Reload(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if code, _, err := px.AdminDo(t.Context(), http.MethodGet, "/config/", nil); err != nil || code != http.StatusOK {
		t.Errorf("%d, %v", code, err)
	}
	resp, err := http.Get(px.Health + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("livez: %d", resp.StatusCode)
	}
}
