package request

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// Section 3: each row alone, with the code and the audit reason of its refusal.
func TestChecks(t *testing.T) {
	get := func(path string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer abc")
		return r
	}
	const pods = "/clusters/team-a/prod/api/v1/pods"
	with := func(r *http.Request, change func(*http.Request)) *http.Request { change(r); return r }
	refused := func(reason string) func(*k8swatch.Cluster) {
		return func(c *k8swatch.Cluster) {
			c.Ready = k8swatch.Condition{Type: "Ready", Status: k8swatch.StatusFalse, Reason: reason}
		}
	}
	for name, tt := range map[string]struct {
		r       *http.Request
		cluster *serving.Cluster
		config  func(*Config)
		name    *Name
		code    int
		audit   string
	}{
		"accepted": {r: get(pods)},
		"CONNECT":  {r: with(get(pods), func(r *http.Request) { r.Method = http.MethodConnect }), code: 405, audit: "method_not_allowed"},
		"TRACE":    {r: with(get(pods), func(r *http.Request) { r.Method = http.MethodTrace }), code: 405, audit: "method_not_allowed"},
		"early write": {r: with(get(pods), func(r *http.Request) {
			r.Method, r.TLS = http.MethodPost, &tls.ConnectionState{}
		}), code: 425, audit: "early_data"},
		"early write at a load balancer": {r: with(get(pods), func(r *http.Request) {
			r.Method, r.Header["Early-Data"] = http.MethodDelete, []string{"1"}
		}), code: 425, audit: "early_data"},
		"early write, malformed": {r: with(get(pods), func(r *http.Request) {
			r.Method, r.Header["Early-Data"] = http.MethodPost, []string{"", "0"}
		}), code: 425, audit: "early_data"},
		"early exec at a load balancer": {r: with(upgrade(get(pods+"/web/exec?command=reboot"), "websocket"), func(r *http.Request) {
			r.Header["Early-Data"] = []string{"1"}
		}), code: 425, audit: "early_data"},
		"early read at a load balancer": {r: with(get(pods), func(r *http.Request) { r.Header["Early-Data"] = []string{"1"} })},
		"early read":                    {r: with(get(pods), func(r *http.Request) { r.TLS = &tls.ConnectionState{} })},
		"not synced":                    {r: get(pods), config: func(c *Config) { c.Clusters.(*someClusters).snapshot = nil }, code: 503, audit: "not_synced"},
		"other form":                    {r: get("/CLUSTERS/team-a/prod/api"), code: 404, audit: "unknown_cluster"},
		"unknown":                       {r: get("/clusters/team-a/other/api"), code: 404, audit: "unknown_cluster"},
		"disabled": {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, alice(), func(c *k8swatch.Cluster) {
			c.Enabled = false
		}), code: 404, audit: "unknown_cluster"},
		"host form":          {r: get("/api/v1/pods"), name: &Name{Key: prodKey}},
		"host form, unknown": {r: get("/api/v1/pods"), name: &Name{}, code: 404, audit: "unknown_cluster"},
		"loop": {r: with(get(pods), func(r *http.Request) {
			h := http.Header{}
			relay := serving.NewRelay(newCluster(t, v1.ModePassthrough, nil, nil).Spec, nil)
			relay.SetVia(h, 1, 1)
			r.Header["Via"] = []string{"1.1 other, " + h.Get("Via"), "1.0 x"}
		}), code: 508, audit: "loop"},
		"dot segment":      {r: get(pods + "/%2e%2e/x"), code: 400, audit: "dot_segment"},
		"bad escape":       {r: with(get(pods), func(r *http.Request) { r.RequestURI = pods + "/%zz" }), code: 400, audit: "bad_path"},
		"space":            {r: with(get(pods), func(r *http.Request) { r.RequestURI = pods + "/a b" }), code: 400, audit: "bad_path"},
		"space in query":   {r: with(get(pods), func(r *http.Request) { r.RequestURI = pods + "?a=b c" }), code: 400, audit: "bad_path"},
		"odd upgrade":      {r: upgrade(get(pods), "h2c"), code: 400, audit: "upgrade_protocol"},
		"two upgrades":     {r: upgrade(get(pods), "websocket", "SPDY/3.1"), code: 400, audit: "upgrade_protocol"},
		"websocket":        {r: upgrade(get(pods), "WebSocket")},
		"spdy":             {r: upgrade(get(pods), "SPDY/3.1")},
		"unknown mode":     {r: get(pods), cluster: newCluster(t, "Agent", alice(), refused(k8swatch.ReasonUpstreamModeUnknown)), code: 503, audit: "mode_unknown"},
		"forbidden mode":   {r: get(pods), cluster: newCluster(t, v1.ModeFrontProxy, alice(), refused(k8swatch.ReasonUpstreamModeNotAllowed)), code: 503, audit: "mode_not_enabled"},
		"audience":         {r: get(pods), cluster: newCluster(t, v1.ModeFrontProxy, alice(), refused(k8swatch.ReasonAudienceValidationRequired)), code: 503, audit: "audience_validation"},
		"not ready":        {r: get(pods), cluster: newCluster(t, v1.ModeFrontProxy, alice(), refused(k8swatch.ReasonClientCertMissing)), code: 503, audit: "not_ready"},
		"not trusted":      {r: get(pods), cluster: rejected(t), code: 503, audit: "upstream_trust"},
		"no credential":    {r: with(get(pods), func(r *http.Request) { r.Header.Del("Authorization") }), code: 401, audit: "no_credential"},
		"bad credential":   {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, failing(&authn.Unauthenticated{Reason: "the token has expired"}), nil), code: 401, audit: "unauthenticated"},
		"no provider":      {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, failing(&authn.Unavailable{Fault: "x"}), nil), code: 503, audit: "idp_unavailable"},
		"dear expressions": {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, failing(authn.ErrSlow), nil), code: 503, audit: "expressions_slow"},
		"provider limit":   {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, failing(&authn.Unavailable{Limit: "x"}), nil), code: 503, audit: "idp_limited"},
		"system identity":  {r: get(pods), cluster: newCluster(t, v1.ModeFrontProxy, alice("system:masters"), func(c *k8swatch.Cluster) { c.GroupPrefix = "" }), code: 403, audit: "upstream_identity_refused"},
		"empty name": {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, validatorFunc(func(string) (*authn.Result, error) {
			return &authn.Result{Identity: &identity.Identity{EmptyName: true}}, nil
		}), nil), code: 403, audit: "upstream_identity_refused"},
		"impersonation denied": {
			r:      with(get(pods), func(r *http.Request) { r.Header.Set("Impersonate-User", "bob") }),
			config: func(c *Config) { c.Impersonation = ImpersonationDeny }, code: 403, audit: "impersonation_denied",
		},
		"impersonation stripped": {r: with(get(pods), func(r *http.Request) { r.Header.Set("Impersonate-User", "bob") })},
		"not in the group":       {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, alice("b"), inGroup("a")), code: 403, audit: "not_in_group"},
		"in the group":           {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, alice("b", "a"), inGroup("a"))},
		"no identity, but a group": {r: get(pods), cluster: newCluster(t, v1.ModePassthrough, nil, func(c *k8swatch.Cluster) {
			c.Auth.DisableValidation, c.RequiredGroup = true, "a"
		}), code: 403, audit: "not_in_group"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.cluster == nil {
				tt.cluster = newCluster(t, v1.ModePassthrough, alice(), nil)
			}
			if tt.name == nil {
				tt.name = &Name{InPath: true}
			}
			config := configOf(clustersOf(tt.cluster))
			if tt.config != nil {
				tt.config(config)
			}
			d, refused := New(httptest.NewRecorder(), tt.r, config, *tt.name, "").Decide()
			switch {
			case tt.code == 0 && refused != nil:
				t.Fatalf("refused with %d %s", refused.Code, refused.Audit)
			case tt.code == 0 && d.Cluster != tt.cluster:
				t.Error("it is for another cluster")
			case tt.code != 0 && (refused == nil || refused.Code != tt.code || refused.Audit != tt.audit):
				t.Errorf("got %+v, want %d %s", refused, tt.code, tt.audit)
			}
		})
	}
}

// An earlier row decides: a request with every fault is refused for the first.
func TestChecksInOrder(t *testing.T) {
	r := httptest.NewRequest(http.MethodTrace, "/clusters/team-a/prod/%2e%2e", nil)
	upgrade(r, "h2c")
	c := newCluster(t, v1.ModePassthrough, failing(&authn.Unavailable{}), func(c *k8swatch.Cluster) {
		c.Ready = k8swatch.Condition{Status: k8swatch.StatusFalse, Reason: k8swatch.ReasonClientCertMissing}
	})
	config := configOf(clustersOf(c))
	for _, step := range []struct {
		code   int
		remedy func()
	}{
		{405, func() { r.Method = http.MethodPost; r.TLS = &tls.ConnectionState{} }},
		{425, func() { r.TLS = nil }},
		{400, func() { r.RequestURI = "/clusters/team-a/prod/api" }},
		{400, func() { delete(r.Header, "Upgrade") }},
		{503, func() { c.Closed = "" }},
		{401, func() { r.Header.Set("Authorization", "Bearer abc") }},
		{503, func() { r.Header.Set("Authorization", "Bearer abc"); c.Auth.Validator = alice() }},
		{0, nil},
	} {
		_, refused := New(discard{http.Header{}}, r, config, Name{InPath: true}, "").Decide()
		if refused == nil {
			refused = new(Refusal)
		}
		if refused.Code != step.code {
			t.Fatalf("refused with %d %s, want %d", refused.Code, refused.Audit, step.code)
		}
		if step.remedy != nil {
			step.remedy()
		}
	}
}

func upgrade(r *http.Request, protocols ...string) *http.Request {
	r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, protocols
	return r
}

func failing(err error) validatorFunc {
	return func(string) (*authn.Result, error) { return nil, err }
}

func inGroup(group string) func(*k8swatch.Cluster) {
	return func(c *k8swatch.Cluster) { c.RequiredGroup = group }
}

// rejected is a cluster whose apiserver does not trust the proxy.
func rejected(t *testing.T) *serving.Cluster {
	c := newCluster(t, v1.ModeFrontProxy, alice(), nil)
	c.Trust.ObserveFrontProxy(probe.Verdict{Trust: v1.TrustRejected})
	return c
}
