package status

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const prefix = "proxyauth:"

// REC-3, REC-4: the status of a good cluster is written once, with its columns
// and an Event, and its users get through.
func TestREC4StatusOfAGoodCluster(t *testing.T) {
	idp := oidc.Start(t, oidc.Options{})
	etcd := kube.StartSharedEtcd(t)
	h := hub.Start(t, kube.Options{Etcd: etcd})
	target := kube.Start(t, kube.Options{Etcd: etcd})
	px := proxy.Start(t, proxy.Options{Hub: h.Kubeconfig})

	h.Apply(t, proxy.FrontProxySecret("team-a", "prod", target.URL, pki.Must(target.FrontProxy())))
	h.Apply(t, proxy.FrontProxyCluster("team-a", "prod", target.URL, target.PKI.ServerCA, prefix, proxy.Authenticator(idp)))
	s := h.WaitReady(t, "team-a", "prod", "True/Serving")
	if s.UpstreamAuth == nil || s.UpstreamAuth.Trust != v1.TrustTrusted || hub.Condition(s, "Reachable") != "True/Answered" ||
		!s.Exposed || s.Path == nil || *s.Path != "/clusters/team-a/prod" || s.Error != nil || s.ObservedGeneration != 1 {
		t.Errorf("status %+v", s)
	}
	out := h.Admin.MustRun(t, "get", "pka", "-n", "team-a", "prod", "-o", "wide").Stdout
	for _, column := range []string{"READY", "PATH", "UPSTREAM", "TRUST", "True", "/clusters/team-a/prod", "FrontProxy", "Trusted"} {
		if !strings.Contains(out, column) {
			t.Errorf("no %s in\n%s", column, out)
		}
	}
	h.WaitEvent(t, "team-a", "prod", "Serving")
	who := px.Kubectl(t, "team-a", "prod", idp.Token(oidc.Alice, nil)).MustRun(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if who.Stdout != prefix+"alice" {
		t.Errorf("whoami %q", who.Stdout)
	}
	time.Sleep(5 * time.Second) // whatever else would be written
	if n := h.StatusWrites(t, "prod"); n != 1 {
		t.Errorf("%d writes of the status", n)
	}
	h.MustNotHaveBeenForbidden(t)
}
