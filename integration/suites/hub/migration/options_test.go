package migration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// optionsOfTheProxy: what the proxy admin does not allow closes a cluster in
// FrontProxy and shows in preparation; there the load goes on, over each
// reload.
func optionsOfTheProxy(t *testing.T, w *world, users *load) {
	reload := func(change func(*proxy.Options)) time.Time {
		t.Helper()
		from := time.Now()
		if err := w.proxy.Reload(w.ctx, change); err != nil {
			t.Fatal(err)
		}
		return from
	}
	for _, tt := range []struct {
		reason, text, answer string
		change               func(*proxy.Options)
	}{
		{"UpstreamModeNotAllowed", "upstream mode FrontProxy is not enabled on this proxy installation", "upstream mode FrontProxy is not enabled on this proxy installation",
			func(o *proxy.Options) { o.AllowedModes = []string{"Passthrough"} }},
		{"AudienceValidationRequired", "audience_validation is warn on this proxy installation", "upstream mode FrontProxy requires OIDC audience validation",
			func(o *proxy.Options) { o.AllowedModes, o.Settings = nil, settings+"\naudience_validation warn" }},
	} {
		from := reload(tt.change)
		s := w.ready(t, live, from, "False/"+tt.reason)
		if !contains(hub.Message(s, "Ready"), tt.text) {
			t.Errorf("Ready says %q", hub.Message(s, "Ready"))
		}
		w.closed(t, live, 503, tt.answer)
		w.event(t, live, from, corev1.EventTypeWarning, tt.reason, tt.text)
		w.status(t, prod, from, tt.reason, func(s *v1.ProxyKubeApiStatus) bool {
			return contains(hub.Message(s, "FrontProxyNotReady"), tt.reason+": ") && hub.Condition(s, "Ready") == "True/Serving"
		})
		users.more(t, idpName)
	}
	from := reload(func(o *proxy.Options) { o.Settings = settings })
	w.serves(t, live, from)
	w.prepares(t, prod, from)
	users.more(t, idpName)
}

// unknownMode: a mode of a later version, which a hub with a later CRD admits.
func unknownMode(t *testing.T, w *world) {
	k := key("team-a", "later")
	w.hub.Apply(t, w.prepared(k, w.main, v1.ModeFrontProxy), w.secret(k, w.main, w.good))
	w.serves(t, k, time.Time{})
	w.hub.Admin.MustRun(t, "patch", "crd", v1.Resource+"."+v1.GroupName, "--type=json", "-p",
		`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/upstream_auth/properties/mode/enum"}]`)
	from := time.Now()
	hub.Eventually(t, "the hub admits the mode", soon, func() bool {
		return w.hub.Admin.MustEnd(t, "patch", "-n", k.Namespace, v1.Resource, k.Name, "--type=merge", "-p", `{"spec":{"upstream_auth":{"mode":"Mirror"}}}`).ExitCode == 0
	})
	const text = "this proxy replica cannot serve upstream mode Mirror yet"
	s := w.ready(t, k, from, "Unknown/UpstreamModeUnknown")
	if hub.Message(s, "Ready") != text || s.UpstreamAuth.Mode != "Mirror" {
		t.Errorf("status %+v", s)
	}
	w.closed(t, k, 503, text)
	w.event(t, k, from, corev1.EventTypeWarning, "UpstreamModeUnknown", text)
	from = time.Now()
	w.patch(t, k, `{"spec":{"upstream_auth":{"mode":"FrontProxy"}}}`)
	w.serves(t, k, from)
}
