package migration

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// TestMain lets what mostly waits run beside each other on a machine of two
// processors too.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// The way from Passthrough to FrontProxy and back (REC-7, TRUST-2) under load,
// and what else the status can say, beside it.
func TestREC7Migration(t *testing.T) {
	t.Parallel()
	wholeWay(t, newWorld(t, byJwtAuthenticators, true))
}

func wholeWay(t *testing.T, w *world) {
	users := w.walk(t, []scene{
		{"a name too long", nameTooLong},
		{"notices", notices},
		{"client_cert", clientCert},
		{"changes that apply at once", changesAtOnce},
	})
	t.Run("options of the proxy", func(t *testing.T) { optionsOfTheProxy(t, w, users) })
	t.Run("a mode that is not known", func(t *testing.T) { unknownMode(t, w) })
	users.stop(t)
	w.judge(t)
}

var (
	// prod is migrated under load, live is in FrontProxy all the time.
	prod = key("team-a", "prod")
	live = key("team-b", "live")
)

// validator is a way to know who is asking.
type validator struct {
	auth func(*oidc.Provider) *v1.AuthConfig
	// objects are those that auth refers to, in one namespace.
	objects func(p *oidc.Provider, namespace string) []any
}

var byJwtAuthenticators = validator{
	auth: func(p *oidc.Provider) *v1.AuthConfig {
		return &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{proxy.Authenticator(p)}}
	},
	objects: func(*oidc.Provider, string) []any { return nil },
}

// scene is something that can be tried while others are.
type scene struct {
	name string
	run  func(*testing.T, *world)
}

// walk is what there is to see with every validator, the migration under load
// and the flags of an apiserver, with other scenes beside. The load goes on.
func (w *world) walk(t *testing.T, beside []scene) *load {
	t.Helper()
	w.hub.Apply(t, slices.Concat(w.validator.objects(w.idp, prod.Namespace), w.validator.objects(w.idp, live.Namespace),
		[]any{w.cluster(prod, w.main), w.prepared(live, w.main, v1.ModeFrontProxy), w.secret(live, w.main, w.good)})...)
	w.ready(t, prod, time.Time{}, "True/Serving")
	users := w.newLoad(t, prod)
	scenes := append([]scene{
		{"the migration", func(t *testing.T, w *world) { migrate(t, w, users) }},
		{"flags of the apiserver", flagsOfTheAPIServer},
	}, beside...)
	t.Run("beside each other", func(t *testing.T) {
		for _, s := range scenes {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(t, w)
			})
		}
	})
	return users
}

// judge looks at what the apiservers and the proxy have written.
func (w *world) judge(t *testing.T) {
	t.Helper()
	w.noRequestRanAsACertificate(t)
	w.nothingLeaked(t)
	w.hub.MustNotHaveBeenForbidden(t)
}

func migrate(t *testing.T, w *world, users *load) {
	began := time.Now()
	table := w.hub.Admin.MustStart(t, "get", v1.Resource, "-n", prod.Namespace, prod.Name, "-w", "-o", "wide")
	users.more(t, idpName)
	if name := w.whoami(t, prod); name != idpName {
		t.Fatalf("whoami %q", name)
	}
	prepare(t, w)
	w.serves(t, live, time.Time{})

	for _, f := range faults {
		if !t.Run(f.name, func(t *testing.T) { f.try(t, w, users) }) {
			t.FailNow()
		}
	}
	for _, s := range w.statuses(prod, began) {
		if hub.Condition(s, "Ready") != "True/Serving" {
			t.Errorf("in preparation Ready was %s: %s", hub.Condition(s, "Ready"), hub.Message(s, "Ready"))
		}
	}
	switchOver(t, w, users)
	// What a process that watched has printed meanwhile.
	for _, columns := range [][]string{
		{"READY", "PATH", "UPSTREAM", "TRUST"}, {"True", "/clusters/team-a/prod", "Passthrough", "Trusted"},
		{"Rejected"}, {"NotHonoured"}, {"Trusted"}, {"FrontProxy", "Trusted"}, {"Passthrough", "Trusted"},
	} {
		line := table.MustLine(t, columns[len(columns)-1])
		for !containsAll(line, columns) {
			line = table.MustLine(t, columns[len(columns)-1])
		}
	}
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// prepare sets the prefixes, one after the other, and the certificate, wrong in
// every way at first: the status says all that is missing at once.
func prepare(t *testing.T, w *world) {
	t.Helper()
	from := time.Now()
	w.patch(t, prod, `{"spec":{"upstream_auth":{"mode":"Passthrough","user_prefix":"proxyauth:"}}}`)
	s, _ := w.status(t, prod, from, "all that is missing", func(s *v1.ProxyKubeApiStatus) bool {
		return containsAll(hub.Message(s, "FrontProxyNotReady"), []string{"InvalidSpec: spec.upstream_auth", "group_prefix", missing + ": ", "does not exist"})
	})
	if a := s.UpstreamAuth; a.ClientCertSecret != "proxyauth-frontproxy-team-a.prod" || a.ClientCertTarget != proxy.CanonicalTarget(w.main.URL) || a.Trust != "" {
		t.Errorf("the status names %+v", a)
	}
	w.event(t, prod, from, corev1.EventTypeWarning, "FrontProxyNotReady", "does not exist")

	from = time.Now()
	wrong := w.secret(prod, w.main, w.pair(w.pki.FrontProxyCA, "system:admin"))
	wrong.Annotations = map[string]string{proxy.TargetAnnotation: "external:https://10.0.0.1", proxy.PrefixAnnotation: "other:"}
	w.hub.Apply(t, wrong)
	w.status(t, prod, from, "all that is wrong", func(s *v1.ProxyKubeApiStatus) bool {
		return containsAll(hub.Message(s, "FrontProxyNotReady"), []string{"InvalidSpec: ", "must be \"" + proxy.CanonicalTarget(w.main.URL) + "\"",
			"user_prefix and group_prefix must both be", reserved + ": "})
	})
	from = time.Now()
	w.patch(t, prod, `{"spec":{"upstream_auth":{"group_prefix":"proxyauth:"}}}`)
	w.hub.Apply(t, w.secret(prod, w.main, w.good))
	w.prepares(t, prod, from)
	w.event(t, prod, from, corev1.EventTypeNormal, "Prepared", "nothing stops")
}

// try sees what a fault does to a cluster in preparation, which serves on, and
// to one in FrontProxy, which closes; and that it opens when it is mended.
func (f *fault) try(t *testing.T, w *world, users *load) {
	began, from, done := f.inject(t, w, prod, live)
	told := []time.Time{
		w.stopped(t, prod, from, f.reason, f.text, f.trust),
		w.refused(t, live, from, f.reason, f.text, f.trust),
		w.event(t, prod, began, corev1.EventTypeWarning, "FrontProxyNotReady", f.reason),
		w.event(t, live, began, corev1.EventTypeWarning, f.reason, ""),
	}
	within(t, done, told)
	users.more(t, idpName)

	from = f.mend(t, w, prod, live)
	w.prepares(t, prod, from)
	w.serves(t, live, from)
	w.event(t, prod, from, corev1.EventTypeNormal, "Prepared", "")
	w.event(t, live, from, corev1.EventTypeNormal, "Serving", "")
	if r := w.ask(t, live); r.Code != 201 || r.User.Username != prefixedName {
		t.Errorf("mended, it answers %d %q %s", r.Code, r.User.Username, r.Status.Message)
	}
}

// within fails the test unless all was told within a round of probes.
func within(t *testing.T, since time.Time, told []time.Time) {
	t.Helper()
	latest := slices.MaxFunc(told, time.Time.Compare).Sub(since)
	t.Logf("all is told after %v", latest.Round(time.Millisecond))
	if latest > roundLimit {
		t.Errorf("told after %v, want %v at most", latest, roundLimit)
	}
}

// switchOver goes to FrontProxy, renews the certificate there, and goes back.
func switchOver(t *testing.T, w *world, users *load) {
	t.Helper()
	from := time.Now()
	w.patch(t, prod, `{"spec":{"upstream_auth":{"mode":"FrontProxy"}}}`)
	users.more(t, prefixedName)
	w.status(t, prod, from, "mode FrontProxy", func(s *v1.ProxyKubeApiStatus) bool {
		return s.UpstreamAuth.Mode == "FrontProxy" && hub.Condition(s, "FrontProxyNotReady") == ""
	})
	if name := w.whoami(t, prod); name != prefixedName {
		t.Errorf("whoami %q", name)
	}
	if out := w.hub.Admin.MustRun(t, "get", "pka", "-n", prod.Namespace, prod.Name, "-o", "wide").Stdout; !containsAll(out,
		[]string{"READY", "PATH", "UPSTREAM", "TRUST", "True", "/clusters/team-a/prod", "FrontProxy", "Trusted"}) {
		t.Errorf("kubectl get -o wide prints\n%s", out)
	}

	renewed := w.pair(w.pki.FrontProxyCA, kube.FrontProxyName)
	w.hub.Apply(t, w.secret(prod, w.main, renewed))
	w.status(t, prod, from, "the renewed certificate", func(s *v1.ProxyKubeApiStatus) bool {
		return s.UpstreamAuth.ClientCertNotAfter != nil && s.UpstreamAuth.ClientCertNotAfter.Time.Equal(renewed.Certificate.NotAfter)
	})
	users.more(t, prefixedName)

	w.patch(t, prod, `{"spec":{"upstream_auth":{"mode":"Passthrough"}}}`)
	users.more(t, idpName)
	w.prepares(t, prod, from)
	if name := w.whoami(t, prod); name != idpName {
		t.Errorf("whoami %q", name)
	}
	for _, s := range w.statuses(prod, from) {
		if hub.Condition(s, "Ready") != "True/Serving" || trust(s) != v1.TrustTrusted {
			t.Errorf("over the switch Ready was %s, trust %q", hub.Condition(s, "Ready"), trust(s))
		}
	}
}

// nameTooLong: the Secret of a cluster can have a name that no Secret may have.
func nameTooLong(t *testing.T, w *world) {
	const text = "give the ProxyKubeApi a shorter name"
	preparing, inForce := key("team-a", strings.Repeat("p", 226)), key("team-a", strings.Repeat("l", 226))
	from := time.Now()
	w.hub.Apply(t, w.prepared(preparing, w.main, v1.ModePassthrough), w.prepared(inForce, w.main, v1.ModeFrontProxy))
	w.stopped(t, preparing, from, "ClientCertNameTooLong", text, "")
	s := w.ready(t, inForce, from, "False/ClientCertNameTooLong")
	if m := hub.Message(s, "Ready"); !contains(m, text) || !contains(m, "254 characters") || trust(s) != "" {
		t.Errorf("status %+v", s)
	}
	w.closed(t, inForce, 503, notReady+"ClientCertNameTooLong")
	w.event(t, preparing, from, corev1.EventTypeWarning, "FrontProxyNotReady", text)
	w.event(t, inForce, from, corev1.EventTypeWarning, "ClientCertNameTooLong", text)
	if r := w.ask(t, preparing); r.Code != 201 || r.User.Username != idpName {
		t.Errorf("in preparation it answers %d %q", r.Code, r.User.Username)
	}
}
