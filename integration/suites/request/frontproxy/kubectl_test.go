package frontproxy

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

const settings = `apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  colour: COLOUR
`

// ID-1: RoleBindings name the forwarded identity, prefix included. kubectl get,
// create, apply, delete and get -w work where one does, and are refused by RBAC
// everywhere else: another namespace, another user, the name without prefix.
func TestID1KubectlUnderRBAC(t *testing.T) {
	w := get(t)
	admin := w.plain.Kubectl(t, "")
	for _, namespace := range []string{"shop", "office", "bare"} {
		admin.MustRun(t, "create", "namespace", namespace)
	}
	admin.MustRun(t, "create", "rolebinding", "editor", "-n", "shop", "--clusterrole=edit", "--user=proxyauth:alice")
	admin.MustRun(t, "create", "rolebinding", "team", "-n", "office", "--clusterrole=view", "--group=proxyauth:équipe")
	admin.MustRun(t, "create", "rolebinding", "bare", "-n", "bare", "--clusterrole=edit", "--user=alice", "--group=team-a", "--group=équipe")
	w.plain.MustAllow(t, "proxyauth:alice", nil, authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps", Namespace: "shop"})
	w.plain.MustAllow(t, "someone", []string{"proxyauth:équipe"}, authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Namespace: "office"})
	w.plain.MustAllow(t, "alice", nil, authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Namespace: "bare"})

	alice := w.px.Kubectl(t, ns, "prod", w.idp.Token(oidc.Alice, nil))
	elodie := w.px.Kubectl(t, ns, "prod", w.idp.Token(oidc.Elodie, nil))
	apply := func(colour string) kube.Kubectl {
		k := alice
		k.Stdin = []byte(strings.ReplaceAll(settings, "COLOUR", colour))
		return k
	}
	watch := alice.MustStart(t, "get", "configmaps", "-n", "shop", "-w", "--output-watch-events")

	t.Run("allowed", func(t *testing.T) {
		alice.MustRun(t, "create", "configmap", "made", "-n", "shop", "--from-literal=a=1")
		apply("red").MustRun(t, "apply", "-n", "shop", "-f", "-")
		apply("green").MustRun(t, "apply", "-n", "shop", "-f", "-")
		apply("blue").MustRun(t, "apply", "-n", "shop", "--server-side", "--force-conflicts", "-f", "-")
		if got := alice.MustRun(t, "get", "configmap", "settings", "-n", "shop", "-o", "jsonpath={.data.colour}").Stdout; got != "blue" {
			t.Errorf("after apply: %q", got)
		}
		alice.MustRun(t, "delete", "configmap", "made", "-n", "shop", "--wait=true")
		if got := elodie.MustRun(t, "get", "configmaps", "-n", "office").Stderr; !strings.Contains(got, "No resources found") {
			t.Errorf("a group's view: %q", got)
		}
		for _, event := range []string{"ADDED      made", "ADDED      settings", "MODIFIED   settings", "DELETED    made"} {
			watch.MustLine(t, event)
		}
	})
	forbidden := []struct {
		name string
		k    kube.Kubectl
		user string
		args []string
	}{
		{"another namespace, get", alice, "proxyauth:alice", []string{"get", "configmaps", "-n", "office"}},
		{"another namespace, create", alice, "proxyauth:alice", []string{"create", "configmap", "x", "-n", "office"}},
		{"another namespace, apply", apply("red"), "proxyauth:alice", []string{"apply", "-n", "office", "-f", "-"}},
		{"another namespace, delete", alice, "proxyauth:alice", []string{"delete", "configmap", "settings", "-n", "office"}},
		{"another namespace, watch", alice, "proxyauth:alice", []string{"get", "configmaps", "-n", "office", "-w"}},
		{"another user", elodie, "proxyauth:élodie", []string{"get", "configmaps", "-n", "shop"}},
		{"view is not edit", elodie, "proxyauth:élodie", []string{"create", "configmap", "x", "-n", "office"}},
		{"a binding without the prefix", alice, "proxyauth:alice", []string{"get", "configmaps", "-n", "bare"}},
		{"a group binding without the prefix", elodie, "proxyauth:élodie", []string{"get", "configmaps", "-n", "bare"}},
		{"cluster scope", alice, "proxyauth:alice", []string{"get", "nodes"}},
	}
	for _, tt := range forbidden {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.k.MustEnd(t, tt.args...)
			if r.ExitCode != 1 || !strings.Contains(r.Stderr, `is forbidden: User "`+tt.user+`" cannot`) {
				t.Errorf("exit code %d\n%s%s", r.ExitCode, r.Stdout, r.Stderr)
			}
			// It is RBAC that refuses, not the proxy.
			if strings.Contains(r.Stderr, "proxyauth: ") {
				t.Errorf("the proxy warned: %s", r.Stderr)
			}
		})
	}
	t.Run("audit", func(t *testing.T) {
		for verb, code := range map[string]int32{"create": 201, "patch": 200, "delete": 200, "watch": 200, "list": 403} {
			t.Run(verb, func(t *testing.T) {
				w.plain.MustAudit(t, func(e *auditv1.Event) bool {
					return e.User.Username == "proxyauth:alice" && e.Verb == verb && e.ObjectRef != nil && e.ObjectRef.Resource == "configmaps" &&
						e.ResponseStatus != nil && e.ResponseStatus.Code == code &&
						slices.Equal(e.User.Groups, []string{"proxyauth:team-a", "proxyauth:a,b", "system:authenticated"}) &&
						strings.HasPrefix(e.UserAgent, "kubectl") && slices.Equal(e.SourceIPs, []string{"127.0.0.1"})
				})
			})
		}
		if strange := audited(t, w.plain, frontProxyIdentities); len(strange) > 0 {
			t.Errorf("requests under another name: %+v", strange[0])
		}
	})
}

// HDR-08, ID-5: the apiserver's audit log shows where the client came from as
// the proxy saw it, and nothing the client says about it.
func TestHDR08SourceIPs(t *testing.T) {
	w := get(t)
	lies := http.Header{
		"X-Forwarded-For": {"203.0.113.9", "203.0.113.10"}, "X-Real-Ip": {"203.0.113.9"}, "Forwarded": {"for=203.0.113.9"},
		"True-Client-Ip": {"203.0.113.9"},
	}
	trusting := proxy.Start(t, proxy.Options{
		Servers:   "trusted_proxies static 127.0.0.2/32",
		Manifests: map[string]string{"prod.yaml": proxy.Manifests(w.frontProxy("prod"), w.secret("prod", w.plain))},
	})
	trusting.MustServe(t, ns, "prod")
	tests := []struct {
		name   string
		px     *proxy.Proxy
		from   string
		header http.Header
		want   []string
	}{
		// The last is the proxy, the peer of the apiserver.
		{"another address", w.px, "127.0.0.2", nil, []string{"127.0.0.2", "127.0.0.1"}},
		{"the proxy's own", w.px, "127.0.0.1", nil, []string{"127.0.0.1"}},
		{"an untrusted peer lies", w.px, "127.0.0.2", lies, []string{"127.0.0.2", "127.0.0.1"}},
		{"a trusted peer tells", trusting, "127.0.0.2", http.Header{"X-Forwarded-For": {"203.0.113.9"}}, []string{"203.0.113.9", "127.0.0.2", "127.0.0.1"}},
		{"another peer than the trusted one", trusting, "127.0.0.3", lies, []string{"127.0.0.3", "127.0.0.1"}},
	}
	for _, tt := range tests {
		for _, protocol := range []string{"h1", "h2"} {
			t.Run(tt.name+", "+protocol, func(t *testing.T) {
				client := tt.px.Client(protocol)
				defer client.CloseIdleConnections()
				dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(tt.from)}}
				client.Transport.(*http.Transport).DialContext = dialer.DialContext
				header := kube.Bearer(w.idp.Token(oidc.Alice, nil))
				for name, values := range tt.header {
					header[name] = values
				}
				marker := "source-ips/" + t.Name()
				header.Set("User-Agent", marker)
				if r := kube.MustWhoAmI(t, client, tt.px.ClusterURL(ns, "prod"), header); r.Code != http.StatusCreated {
					t.Fatalf("%+v", r)
				}
				events := w.plain.MustAudit(t, func(e *auditv1.Event) bool { return e.UserAgent == marker })
				if diff := cmp.Diff(tt.want, events[0].SourceIPs); diff != "" || events[0].User.Username != "proxyauth:alice" {
					t.Errorf("%s, sourceIPs (-want +got):\n%s", events[0].User.Username, diff)
				}
			})
		}
	}
}
