package frontproxy

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

const credentialID = "authentication.kubernetes.io/credential-id"

// ID-4: in Passthrough the bearer reaches the apiserver, which authenticates it
// itself; the proxy asserts no identity.
func TestID4Passthrough(t *testing.T) {
	w := get(t)
	token := w.idp.Token(oidc.Alice, map[string]any{"jti": "passed-on"})
	want := authenticationv1.UserInfo{
		Username: "oidc:alice", Groups: []string{"team-a", "a,b", "system:authenticated"},
		// Only who saw the token itself knows this.
		Extra: map[string]authenticationv1.ExtraValue{credentialID: {"JTI=passed-on"}},
	}
	t.Run("kubectl", func(t *testing.T) {
		if diff := cmp.Diff(want, whoami(t, w.px.Kubectl(t, ns, "pass", token))); diff != "" {
			t.Errorf("identity (-want +got):\n%s", diff)
		}
		w.full.MustAudit(t, func(e *auditv1.Event) bool {
			return e.User.Username == "oidc:alice" && strings.HasPrefix(e.UserAgent, "kubectl")
		})
	})
	t.Run("asserted headers do not count", func(t *testing.T) {
		header := kube.Bearer(token)
		header["X-Remote-User"], header["X-Remote-Group"] = []string{"root"}, []string{"system:masters"}
		header["Impersonate-User"] = []string{"system:admin"}
		r := kube.MustWhoAmI(t, w.px.Client("h2"), w.url("pass"), header)
		if diff := cmp.Diff(want, r.User); diff != "" {
			t.Errorf("%d, identity (-want +got):\n%s", r.Code, diff)
		}
		if warnings := strings.Join(r.Header["Warning"], "\n"); !strings.Contains(warnings, "Impersonate-* headers were ignored") {
			t.Errorf("Warning: %q", warnings)
		}
	})
	t.Run("the proxy validates first", func(t *testing.T) {
		for name, bad := range map[string]string{
			"changed":        oidc.FlipSignatureBit(token),
			"other audience": w.idp.Token(oidc.Alice, map[string]any{"aud": "another"}),
			"opaque":         "opaque-token",
		} {
			header := kube.Bearer(bad)
			header.Set("User-Agent", "refused-by-the-proxy")
			if r := kube.MustWhoAmI(t, w.px.Client("h1"), w.url("pass"), header); r.Code != http.StatusUnauthorized || r.Header.Get("Warning") == "" {
				t.Errorf("%s: %d %v", name, r.Code, r.Header)
			}
		}
		kube.MustWhoAmI(t, w.px.Client("h1"), w.url("pass"), kube.Bearer(token))
		if events := audited(t, w.full, func(e *auditv1.Event) bool { return e.UserAgent == "refused-by-the-proxy" }); len(events) > 0 {
			t.Errorf("it reached the apiserver: %+v", events[0])
		}
	})
	t.Run("a token the apiserver refuses", func(t *testing.T) {
		// The apiserver wants a string where the proxy does not look at iat:
		// its 401 is relayed as it is.
		header := kube.Bearer(w.idp.Token(oidc.Alice, map[string]any{"iat": "yesterday"}))
		r := kube.MustWhoAmI(t, w.px.Client("h1"), w.url("pass"), header)
		if r.Code != http.StatusUnauthorized || r.Status.Message != "Unauthorized" || r.Header.Get("Warning") != "" {
			t.Errorf("%d %q %v", r.Code, r.Status.Message, r.Header)
		}
	})
}

// AUTH-3: with disable_validation whatever came is relayed, and the apiserver
// alone decides.
func TestAUTH3DisableValidation(t *testing.T) {
	w := get(t)
	admin := w.full.Kubectl(t, "")
	admin.MustRun(t, "create", "serviceaccount", "robot", "-n", "default")
	robot := strings.TrimSpace(admin.MustRun(t, "create", "token", "robot", "-n", "default").Stdout)

	tests := []struct {
		name   string
		header http.Header
		code   int
		user   string
	}{
		{"a token of the apiserver's own", kube.Bearer(robot), 201, "system:serviceaccount:default:robot"},
		{"a token of the provider", kube.Bearer(w.idp.Token(oidc.Alice, nil)), 201, "oidc:alice"},
		{"nonsense", kube.Bearer("nonsense"), 401, ""},
		{"none: anonymous may not ask", http.Header{}, 403, ""},
		{"another scheme is none", http.Header{"Authorization": {"Basic YTpi"}}, 403, ""},
		{"asserted headers are none", http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}}, 403, ""},
		{"nor do they win", http.Header{"Authorization": {"Bearer " + robot}, "X-Remote-User": {"root"}}, 201, "system:serviceaccount:default:robot"},
		{"impersonation is stripped", http.Header{"Authorization": {"Bearer " + robot}, "Impersonate-User": {"root"}}, 201, "system:serviceaccount:default:robot"},
	}
	for _, tt := range tests {
		for _, protocol := range []string{"h1", "h2"} {
			t.Run(tt.name+", "+protocol, func(t *testing.T) {
				client := w.px.Client(protocol)
				defer client.CloseIdleConnections()
				r := kube.MustWhoAmI(t, client, w.url("open"), tt.header.Clone())
				if r.Code != tt.code || r.User.Username != tt.user {
					t.Errorf("%d %+v %s, want %d %s", r.Code, r.User, r.Status.Message, tt.code, tt.user)
				}
				// The answer is the apiserver's, also where it refuses.
				if r.Header.Get("Audit-Id") == "" {
					t.Errorf("not an answer of the apiserver: %v", r.Header)
				}
			})
		}
	}
	t.Run("kubectl", func(t *testing.T) {
		if got := whoami(t, w.px.Kubectl(t, ns, "open", robot)); got.Username != "system:serviceaccount:default:robot" {
			t.Errorf("%+v", got)
		}
	})
}

// AUTH-1, ID-4: a bearer in a WebSocket subprotocol entry goes to the apiserver
// as Authorization.
func TestID4SubprotocolBearer(t *testing.T) {
	w := get(t)
	token := w.idp.Token(oidc.Alice, nil)
	r := rawUpgrade(t, w, "pass", "/api/v1/namespaces/default/pods/none/exec?command=sh",
		"Sec-WebSocket-Protocol: v5.channel.k8s.io, base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(token)))
	if r.Code != http.StatusForbidden || !strings.Contains(r.Body, `User \"oidc:alice\" cannot get resource \"pods/exec\"`) {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}
