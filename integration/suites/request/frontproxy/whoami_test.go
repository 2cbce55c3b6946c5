package frontproxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// whoami is kubectl auth whoami.
func whoami(t *testing.T, k kube.Kubectl, args ...string) authenticationv1.UserInfo {
	t.Helper()
	out := k.MustRun(t, append([]string{"auth", "whoami", "-o", "json"}, args...)...).Stdout
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal([]byte(out), &review); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return review.Status.UserInfo
}

// ID-1, ID-3, FWD-01: the apiserver sees prefix and name, each group as one
// group whatever it holds, extras under their key, and UTF-8 untouched.
func TestID3WhoAmI(t *testing.T) {
	w := get(t)
	tests := []struct {
		name  string
		token string
		want  authenticationv1.UserInfo
	}{
		{"alice", w.idp.Token(oidc.Alice, nil), authenticationv1.UserInfo{
			Username: "proxyauth:alice", Groups: []string{"proxyauth:team-a", "proxyauth:a,b", "system:authenticated"},
		}},
		{"élodie", w.idp.Token(oidc.Elodie, nil), authenticationv1.UserInfo{
			Username: "proxyauth:élodie", Groups: []string{"proxyauth:équipe", "system:authenticated"},
		}},
		{"a real login", w.idp.MustLogin(t, oidc.Alice, oidc.ClientID).IDToken, authenticationv1.UserInfo{
			Username: "proxyauth:alice", Groups: []string{"proxyauth:team-a", "proxyauth:a,b", "system:authenticated"},
		}},
		{"extra", w.idp.Token(oidc.Alice, map[string]any{"dept": []string{"R&D", "a, b", "Zürich"}, "groups": nil}), authenticationv1.UserInfo{
			Username: "proxyauth:alice", Groups: []string{"system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{deptKey: {"R&D", "a, b", "Zürich"}},
		}},
		{"groups that look like syntax", w.idp.Token(oidc.Alice, map[string]any{"groups": []string{"CN=ops,OU=eu,DC=example,DC=test", "a;b", `"q"`, "système", "system:masters"}}), authenticationv1.UserInfo{
			Username: "proxyauth:alice",
			Groups:   []string{"proxyauth:CN=ops,OU=eu,DC=example,DC=test", "proxyauth:a;b", `proxyauth:"q"`, "proxyauth:système", "proxyauth:system:masters", "system:authenticated"},
		}},
		{"64 groups", w.idp.Token(oidc.Alice, map[string]any{"groups": numbered(64)}), authenticationv1.UserInfo{
			Username: "proxyauth:alice", Groups: append(prefixed(numbered(64)), "system:authenticated"),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := whoami(t, w.px.Kubectl(t, ns, "prod", tt.token))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}
}

func numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("group-%02d", i)
	}
	return list
}

func prefixed(names []string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = prefix + name
	}
	return list
}

// The apiserver of these tests has no OIDC flag and no authentication
// configuration, so that what it knows of a user comes from the proxy.
func TestApiserverHasNoOIDCFlags(t *testing.T) {
	w := get(t)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.plain.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"oidc", "authentication-config", "webhook"} {
		if strings.Contains(string(line), flag) {
			t.Errorf("the apiserver runs with %q: %q", flag, line)
		}
	}
	if !strings.Contains(string(line), "--requestheader-allowed-names") {
		t.Errorf("not the command line of the apiserver: %q", line)
	}
}

// ID-3: a uid is sent with forward_uid alone.
func TestID3ForwardUID(t *testing.T) {
	w := get(t)
	token := w.idp.Token(oidc.Alice, nil)
	if got := whoami(t, w.px.Kubectl(t, ns, "uid", token)); got.UID != "subject-alice" || got.Username != "proxyauth:alice" {
		t.Errorf("with forward_uid: %+v", got)
	}
	// prod's apiserver would ignore one, so the same is asked of this one.
	p := w.frontProxy("nouid")
	p.Spec.Service.ExternalService.URL = w.full.URL
	w.px.MustWrite(t, "nouid.yaml", p, w.secret("nouid", w.full))
	defer func() {
		if err := w.px.RemoveManifest("nouid.yaml"); err != nil {
			t.Error(err)
		}
	}()
	w.px.MustServe(t, ns, "nouid")
	if got := whoami(t, w.px.Kubectl(t, ns, "nouid", token)); got.UID != "" || got.Username != "proxyauth:alice" {
		t.Errorf("without forward_uid: %+v", got)
	}
}

// ID-7, ID-5: what a client says of itself counts for nothing at the
// apiserver.
func TestID7ClientHeadersDoNotCount(t *testing.T) {
	w := get(t)
	for _, protocol := range []string{"h1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			header := kube.Bearer(w.idp.Token(oidc.Elodie, nil))
			for name, values := range map[string][]string{
				"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Example.com%2fdept": {"x"},
				"X-Remote-Uid": {"0"}, "Impersonate-User": {"system:admin"}, "Impersonate-Group": {"system:masters"},
			} {
				header[name] = values
			}
			client := w.px.Client(protocol)
			defer client.CloseIdleConnections()
			r := kube.MustWhoAmI(t, client, w.url("prod"), header)
			want := authenticationv1.UserInfo{Username: "proxyauth:élodie", Groups: []string{"proxyauth:équipe", "system:authenticated"}}
			if diff := cmp.Diff(want, r.User); r.Code != http.StatusCreated || diff != "" {
				t.Errorf("code %d, identity (-want +got):\n%s", r.Code, diff)
			}
		})
	}
}

// frontProxyIdentities are events of people under the names of the proxy's
// certificate, or under a name without prefix: there must be none. The proxy's own
// request for the version is anonymous (REC-6).
func frontProxyIdentities(e *auditv1.Event) bool {
	if e.UserAgent == "proxyauth-probe" && e.RequestURI == "/version" {
		return false
	}
	switch e.User.Username {
	case kube.FrontProxyName, "", "system:anonymous", oidc.Alice, oidc.Elodie:
		return true
	}
	return false
}
