package hostile

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// causes are reasons to refuse one request, in the order of section 3. The
// last ones are properties of the cluster, the others of the request.
type causes uint

const (
	trace         causes = 1 << iota // row 1
	unknown                          // row 4
	loop                             // row 5
	dotSegment                       // row 6
	otherUpgrade                     // row 6
	notReady                         // row 8
	noCredential                     // row 9
	idpDown                          // row 9
	badIdentity                      // row 10
	impersonating                    // row 11
	notInGroup                       // row 12
	trustUnknown                     // row 14
	allCauses     = iota
)

func (c causes) has(other causes) bool { return c&other != 0 }

// answers are what each cause is answered with, in order.
var answers = []struct {
	cause   causes
	code    int
	message string
}{
	{trace, http.StatusMethodNotAllowed, "the method is not allowed"},
	{unknown, http.StatusNotFound, "no such cluster"},
	{loop, http.StatusLoopDetected, "came back to this cluster"},
	{dotSegment, http.StatusBadRequest, "path has a dot segment"},
	{otherUpgrade, http.StatusBadRequest, "is not relayed"},
	{notReady, http.StatusServiceUnavailable, "this cluster is not ready for upstream mode FrontProxy: ClientCertMissing"},
	{noCredential, http.StatusUnauthorized, "no bearer token was sent"},
	{idpDown, http.StatusServiceUnavailable, "the identity provider cannot be asked"},
	{badIdentity, http.StatusForbidden, "has a value it cannot forward"},
	{impersonating, http.StatusForbidden, "impersonation is not allowed"},
	{notInGroup, http.StatusForbidden, "not a member of group admins"},
	{trustUnknown, http.StatusServiceUnavailable, "this cluster is not ready for upstream mode FrontProxy: UpstreamTrustUnknown"},
}

// The properties of a cluster.
const ofCluster = notReady | idpDown | notInGroup | trustUnknown

func (c causes) clusterName() string { return "cluster-" + strconv.Itoa(int(c&ofCluster)) }

// Section 3, ANS-3: whatever else is wrong with a request, the first row
// answers: every set of causes, over both protocols.
func TestSection3Order(t *testing.T) {
	up := rawserver.Start(t, rawserver.Options{})
	// Trust stays unknown where the review is answered 500, request after
	// request.
	untrusted := rawserver.Start(t, rawserver.Options{Bare: true, Handler: rawserver.Answer(http.StatusInternalServerError, "text/plain", []byte("no"))})
	gone := oidc.Start(t, oidc.Options{Users: users()})
	clusters := map[string]string{}
	for c := range causes(1 << allCauses) {
		if c&^ofCluster != 0 {
			continue
		}
		behind, idp := up, shared.idp
		if c.has(trustUnknown) {
			behind = untrusted
		}
		if c.has(idpDown) {
			idp = gone
		}
		a := proxy.Authenticator(idp)
		object := proxy.FrontProxyCluster(ns, c.clusterName(), behind.URL, behind.ServerCA, prefix, a)
		if c.has(notInGroup) {
			group := "admins"
			object.Spec.ProxyGroup = &group
		}
		objects := []any{object}
		if !c.has(notReady) {
			objects = append(objects, proxy.FrontProxySecret(ns, c.clusterName(), behind.URL, behind.FrontProxy(1)))
		}
		clusters[c.clusterName()+".yaml"] = proxy.Manifests(objects...)
	}
	px := proxy.Start(t, proxy.Options{Manifests: clusters, Settings: "impersonation deny"})
	good := call{cluster: causes(0).clusterName(), path: "/api"}.asAlice()
	w := way{px: px, protocol: h1, up: up}
	px.MustServe(t, ns, causes(0).clusterName())
	_, own, _ := strings.Cut(w.relayed(t, good).Lines("Via")[0], " ")
	vias := map[string]string{good.cluster: own}
	for c := range causes(1 << allCauses) {
		if c&^ofCluster == 0 {
			ready := "True/"
			switch {
			case c.has(notReady):
				ready = "False/"
			case c.has(trustUnknown):
				ready = "Unknown/"
			}
			px.MustCluster(t, ns, c.clusterName(), func(s *proxy.ClusterStatus) bool { return strings.HasPrefix(s.Ready(), ready) })
			vias[c.clusterName()] = viaOf(ns+"/"+c.clusterName(), clusterURL(c, up, untrusted))
		}
	}
	if vias[good.cluster] != own {
		t.Fatalf("Via is %q, not the %q of URL-6", own, vias[good.cluster])
	}
	goneTokens := map[bool]string{false: gone.Token(oidc.Alice, nil), true: gone.Token(oidc.Alice, map[string]any{"groups": "a\x01"})}
	tokens := map[bool]string{false: token(nil), true: token(map[string]any{"groups": "a\x01"})}
	gone.Suspend()

	reset := func() { up.Reset(); untrusted.Reset() }
	connections := map[string]func(c call) rawclient.Answer{
		h1: keepAlive(t, px),
		h2: func() func(call) rawclient.Answer {
			conn := rawclient.MustDialH2(t, px.Host, px.CA.Pool())
			return func(c call) rawclient.Answer { return conn.Do(t, c.h2(px), c.body) }
		}(),
	}
	tried := 0
	for protocol, send := range connections {
		for c := causes(1); c < 1<<allCauses; c++ {
			if c.has(otherUpgrade) && protocol == h2 {
				continue // HTTP/2 has no upgrade
			}
			request := call{cluster: c.clusterName(), path: "/api"}
			if c.has(trace) {
				request.method = "TRACE"
			}
			if c.has(loop) {
				request = request.with("Via: 1.1 " + vias[request.cluster])
			}
			if c.has(unknown) {
				request.cluster += "-not"
			}
			if c.has(dotSegment) {
				request.path = "/api/%2e%2e"
			}
			if c.has(otherUpgrade) {
				request = request.with("Connection: Upgrade", "Upgrade: h2c")
			}
			if !c.has(noCredential) {
				from := tokens
				if c.has(idpDown) {
					from = goneTokens
				}
				request = request.bearer(from[c.has(badIdentity)])
			}
			if c.has(impersonating) {
				request = request.with("Impersonate-User: bob")
			}
			for _, want := range answers {
				if !c.has(want.cause) {
					continue
				}
				reset()
				wantStatus(t, send(request), want.code, want.message)
				if n := len(up.Requests()) + len(untrusted.Requests()); n > 0 {
					t.Errorf("%d requests went upstream", n)
				}
				tried++
				break
			}
			if t.Failed() {
				t.Fatalf("%s, causes %b: %+v", protocol, c, request)
			}
		}
	}
	t.Logf("%d sets of causes", tried)
}

func clusterURL(c causes, up, untrusted *rawserver.Server) string {
	if c.has(trustUnknown) {
		return untrusted.URL
	}
	return up.URL
}

// keepAlive sends requests without a body on one HTTP/1.1 connection: no
// refusal ends it.
func keepAlive(t *testing.T, px *proxy.Proxy) func(call) rawclient.Answer {
	t.Helper()
	conn := rawclient.MustDial(t, px.Host, px.CA.Pool())
	return func(c call) rawclient.Answer { return conn.Do(t, c.h1(px)) }
}

// Section 3, row 8: a cluster that may not serve asks no identity provider,
// and each mode has its words.
func TestSection3NotReady(t *testing.T) {
	idp := oidc.Start(t, oidc.Options{Users: users()})
	up := rawserver.Start(t, rawserver.Options{NoIdentity: true})
	a := proxy.Authenticator(idp)
	pass := passthrough("pass", up, a)
	pass.Spec.Cert = &v1.CertSource{ConfigMap: &v1.KeyReference{Name: "none", Key: "ca.crt"}}
	invalid := passthrough("invalid", up, a)
	invalid.Spec.AuthConfig.JWT[0].ClaimMappings = &v1.ClaimMappings{
		Username: &v1.PrefixedClaimOrExpression{Expression: ptr("claims.")},
	}
	disabled := passthrough("disabled", up, a)
	disabled.Spec.Enabled = new(bool)
	px := proxy.Start(t, proxy.Options{AllowedModes: []string{"Passthrough"}, Manifests: map[string]string{
		"not-allowed.yaml": frontProxyWith("not-allowed", up, up.FrontProxy(1), a, nil),
		"pass.yaml":        proxy.Manifests(pass), "invalid.yaml": proxy.Manifests(invalid), "disabled.yaml": proxy.Manifests(disabled),
	}})
	enforce := proxy.Start(t, proxy.Options{Settings: "audience_validation warn", Manifests: map[string]string{
		"not-enforced.yaml": frontProxyWith("not-enforced", up, up.FrontProxy(1), a, nil),
	}})
	for _, tc := range []struct {
		px      *proxy.Proxy
		cluster string
		code    int
		message string
	}{
		{px, "not-allowed", 503, "upstream mode FrontProxy is not enabled on this proxy installation"},
		{px, "pass", 503, "this cluster is not ready: ReferenceNotFound"},
		{px, "invalid", 503, "this cluster is not ready: InvalidSpec"},
		{px, "disabled", 404, "no such cluster"},
		{enforce, "not-enforced", 503, "requires OIDC audience validation"},
	} {
		t.Run(tc.cluster, func(t *testing.T) {
			tc.px.MustCluster(t, ns, tc.cluster, func(s *proxy.ClusterStatus) bool { return strings.HasPrefix(s.Ready(), "False/") })
			bothProtocols(t, func(t *testing.T, protocol string) {
				w := way{px: tc.px, protocol: protocol, cluster: tc.cluster, up: up}
				w.refused(t, call{path: "/api"}.bearer(idp.Token(oidc.Alice, nil)), tc.code, tc.message)
				w.refused(t, call{path: "/version"}, tc.code, tc.message)
			})
			wantStatus(t, upgradeTo(t, tc.px, call{cluster: tc.cluster, path: "/api"}.bearer(idp.Token(oidc.Alice, nil)), "websocket"), tc.code, tc.message)
		})
	}
	if calls := idp.AllCalls(); len(calls) > 0 {
		t.Errorf("the identity provider was asked: %v", calls)
	}
}

func ptr[T any](v T) *T { return &v }
