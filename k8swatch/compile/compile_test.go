package compile

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// Each row holds everything that is wrong in the rows after it: the first
// reason that applies is told (section 7).
func TestReadyTellsTheFirstReasonThatApplies(t *testing.T) {
	type step struct {
		reason string
		part   string
		mend   func(*bench, *v1.ProxyKubeApi)
	}
	steps := []step{
		{k8swatch.ReasonDisabled, "spec.enabled is false", func(_ *bench, o *v1.ProxyKubeApi) { o.Spec.Enabled = ptr.To(true) }},
		{k8swatch.ReasonUpstreamModeUnknown, "cannot serve upstream mode Telepathy yet", func(_ *bench, o *v1.ProxyKubeApi) { o.Spec.UpstreamAuth.Mode = v1.ModeFrontProxy }},
		{k8swatch.ReasonUpstreamModeNotAllowed, "upstream mode FrontProxy is not enabled on this proxy installation; allowed_modes opens it", func(b *bench, _ *v1.ProxyKubeApi) {
			b.Compiler.options.AllowedModes = []v1.UpstreamMode{v1.ModePassthrough, v1.ModeFrontProxy}
		}},
		{k8swatch.ReasonAudienceValidationRequired, "requires OIDC audience validation", func(b *bench, _ *v1.ProxyKubeApi) { b.Compiler.options.AudienceValidation = AudienceEnforce }},
		{k8swatch.ReasonInvalidSpec, "spec.upstream_auth.user_prefix: user_prefix is required", func(_ *bench, o *v1.ProxyKubeApi) { o.Spec.UpstreamAuth.UserPrefix = ptr.To("t:") }},
		{k8swatch.ReasonServiceNotFound, "Service team-a/api does not exist", func(b *bench, _ *v1.ProxyKubeApi) {
			b.store.Services[k8swatch.Key{Namespace: "team-a", Name: "api"}] = serviceOf("api", corev1.ServicePort{Port: 443})
		}},
		{k8swatch.ReasonReferenceNotFound, "get Secret team-a/ca: it does not exist", func(b *bench, _ *v1.ProxyKubeApi) {
			b.putSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "ca"}, Data: map[string][]byte{"ca.crt": k8stest.Certificate(b.t).Crt}})
		}},
		{k8swatch.ReasonClientCertMissing, "Secret proxyauth/" + k8stest.FrontProxyName + " does not exist", func(b *bench, _ *v1.ProxyKubeApi) {
			b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(b.t), func(s *corev1.Secret) {
				s.Annotations[k8swatch.FrontProxyTargetAnnotation] = "service:team-a/api:443"
			}))
		}},
		{k8swatch.ReasonServing, "", nil},
	}
	b := newBench(t, func(o *Options) { o.AllowedModes, o.AudienceValidation = nil, "warn" })
	o := k8stest.Object(k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) {
		s.Enabled = ptr.To(false)
		s.UpstreamAuth.Mode = "Telepathy"
		s.UpstreamAuth.UserPrefix = nil
		s.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "api"}}
		s.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: "ca", Key: "ca.crt"}}
	})
	b.put(o)
	for _, s := range steps {
		c := b.compile()
		k8stest.WantReady(t, c, s.reason, s.part)
		if s.mend != nil {
			s.mend(b, o)
		}
	}
}

func TestGates(t *testing.T) {
	tests := map[string]struct {
		options func(*Options)
		change  func(*v1.ProxyKubeApiSpec)
		want    string
	}{
		"Passthrough by default":                     {want: k8swatch.ReasonServing},
		"Passthrough needs no audience setting":      {options: func(o *Options) { o.AudienceValidation = "off" }, want: k8swatch.ReasonServing},
		"Passthrough is always allowed":              {options: func(o *Options) { o.AllowedModes = []v1.UpstreamMode{v1.ModeFrontProxy} }, want: k8swatch.ReasonServing},
		"FrontProxy is not allowed by default":       {options: func(o *Options) { o.AllowedModes = nil }, change: k8stest.InFrontProxy, want: k8swatch.ReasonUpstreamModeNotAllowed},
		"FrontProxy with audience warn":              {options: func(o *Options) { o.AudienceValidation = "warn" }, change: k8stest.InFrontProxy, want: k8swatch.ReasonAudienceValidationRequired},
		"FrontProxy with audience off":               {options: func(o *Options) { o.AudienceValidation = "off" }, change: k8stest.InFrontProxy, want: k8swatch.ReasonAudienceValidationRequired},
		"FrontProxy with the default audience":       {change: k8stest.InFrontProxy, want: k8swatch.ReasonServing},
		"an unknown mode is never another":           {change: func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth = &v1.UpstreamAuth{Mode: "frontproxy"} }, want: k8swatch.ReasonUpstreamModeUnknown},
		"an unknown mode, listed as allowed":         {options: func(o *Options) { o.AllowedModes = []v1.UpstreamMode{"Future"} }, change: func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth = &v1.UpstreamAuth{Mode: "Future"} }, want: k8swatch.ReasonUpstreamModeUnknown},
		"enabled by default":                         {change: func(s *v1.ProxyKubeApiSpec) { s.Enabled = nil }, want: k8swatch.ReasonServing},
		"preparation leaves Ready alone (REC-7)":     {options: func(o *Options) { o.AllowedModes, o.AudienceValidation = nil, "off" }, change: k8stest.InPreparation, want: k8swatch.ReasonServing},
		"a rule of admission on an old object API-3": {change: func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = ptr.To("") }, want: k8swatch.ReasonInvalidSpec},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(o *Options) {
				if test.options != nil {
					test.options(o)
				}
			})
			b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
			o := k8stest.Object()
			if test.change != nil {
				test.change(&o.Spec)
			}
			b.put(o)
			k8stest.WantReady(t, b.compile(), test.want)
		})
	}
}

func TestCompileCopiesTheObject(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object(k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) {
		s.ExposeViaDashboard = true
		s.UpstreamAuth.GroupPrefix = ptr.To("g:")
		s.UpstreamAuth.ForwardUID = true
	}))
	c := b.compile()
	if c.Key != k8stest.Key || c.UID != "uid-1" || c.Generation != 7 || !c.Enabled || c.Mode != v1.ModeFrontProxy ||
		c.UserPrefix != "t:" || c.GroupPrefix != "g:" || !c.ForwardUID || c.Preparing {
		t.Errorf("Compile: %+v", c)
	}
}

func TestCompileOfAnObjectThatIsGone(t *testing.T) {
	b := newBench(t)
	if c := b.at(k8stest.Key); c != nil {
		t.Errorf("Compile of nothing: %+v", c)
	}
	b.store.Objects[k8stest.Key] = &k8swatch.Object{}
	if c := b.at(k8stest.Key); c != nil {
		t.Errorf("Compile of an empty Object: %+v", c)
	}
	b.put(k8stest.Object())
	b.compile()
	delete(b.store.Objects, k8stest.Key)
	if c := b.at(k8stest.Key); c != nil || b.carried[k8stest.Key].uid != "" {
		t.Errorf("Compile after a deletion: %+v, carried %+v", c, b.carried[k8stest.Key])
	}
}

func TestNewNeedsTheRulesOfAdmission(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New took options without Revalidate")
		}
	}()
	New(Options{})
}

// CONF-6: an object that was never accepted is listed with InvalidSpec, one
// whose newest version was refused goes on with a notice.
func TestRefusedObjects(t *testing.T) {
	b := newBench(t)
	b.store.Objects[k8stest.Key] = &k8swatch.Object{ProxyKubeApi: k8stest.Object(), Invalid: "spec.serivce: unknown field"}
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "spec.serivce: unknown field")

	b.store.Objects[k8stest.Key] = &k8swatch.Object{ProxyKubeApi: k8stest.Object(), UpdateRefused: "spec.service: exactly one\nof …"}
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	k8stest.WantNotice(t, c, k8swatch.NoticeUpdateRefused, "spec.service: exactly one of …")

	b.store.Objects[k8stest.Key] = &k8swatch.Object{ProxyKubeApi: &v1.ProxyKubeApi{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "prod"}}, Invalid: "unreadable"}
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "unreadable")
}

// API-3: the message names the field and the rule, and never repeats a value,
// which may be a whole object with a client secret in it.
func TestMessagesOfRulesHoldNoValues(t *testing.T) {
	path := field.NewPath("spec", "auth_config")
	b := newBench(t, func(o *Options) {
		o.Revalidate = func(*v1.ProxyKubeApi) field.ErrorList {
			return field.ErrorList{
				field.Invalid(path, map[string]string{"client_secret": "hunter2"}, "validate_against: OidcProvider needs oidc_provider.enabled: true"),
				field.Required(path.Child("jwt"), ""),
				field.Duplicate(path.Child("jwt"), "hunter2"),
				field.NotSupported(path.Child("validate_against"), "hunter2", []string{"JwtAuthenticators"}),
				field.TooLong(path.Child("x"), "hunter2", 3),
			}
		}
	})
	b.put(k8stest.Object())
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, "spec.auth_config: validate_against: OidcProvider needs", "spec.auth_config.jwt: is required", `supported values: "JwtAuthenticators"`)
	if strings.Contains(c.Ready.Message, "hunter2") {
		t.Errorf("the message repeats a value: %s", c.Ready.Message)
	}
}

// The rules run once for each spec and mode: they are many, and an object is
// compiled at each change of anything.
func TestRulesRunOnceForEachSpec(t *testing.T) {
	var modes []v1.UpstreamMode
	b := newBench(t, func(o *Options) {
		o.Revalidate = func(object *v1.ProxyKubeApi) field.ErrorList {
			modes = append(modes, object.Spec.UpstreamAuth.Mode)
			return nil
		}
	})
	o := k8stest.Object(k8stest.InPreparation)
	b.put(o)
	for range 3 {
		b.compile()
	}
	if want := []v1.UpstreamMode{v1.ModePassthrough, v1.ModeFrontProxy}; !reflect.DeepEqual(modes, want) {
		t.Errorf("the rules ran in %v, want %v", modes, want)
	}
	if o.Spec.UpstreamAuth.Mode != v1.ModePassthrough {
		t.Error("looking at another mode changed the object")
	}
	o.Spec.ProxyGroup = ptr.To("g")
	b.compile()
	if len(modes) != 4 {
		t.Errorf("the rules ran %d times, want 4", len(modes))
	}
}

func TestRequiredGroup(t *testing.T) { // ACC-1
	tests := map[string]struct {
		proxy, dashboard *string
		exposed          bool
		want             string
	}{
		"none":                           {},
		"dashboard_group without expose": {dashboard: ptr.To("d")},
		"proxy_group":                    {proxy: ptr.To("p"), want: "p"},
		"proxy_group wins":               {proxy: ptr.To("p"), dashboard: ptr.To("d"), exposed: true, want: "p"},
		"dashboard_group":                {dashboard: ptr.To("d"), exposed: true, want: "d"},
		"default of dashboard_group":     {exposed: true, want: "dashboard-team-a-prod"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
				s.ProxyGroup, s.DashboardGroup, s.ExposeViaDashboard = test.proxy, test.dashboard, test.exposed
			}))
			if got := b.compile().RequiredGroup; got != test.want {
				t.Errorf("RequiredGroup %q, want %q", got, test.want)
			}
		})
	}
}

// REC-7: in preparation everything that would stop FrontProxy is listed at once,
// and nothing of it touches Ready.
func TestPreparationListsEverything(t *testing.T) {
	b := newBench(t, func(o *Options) { o.AllowedModes, o.AudienceValidation = nil, "warn" })
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.ModePassthrough, UserPrefix: ptr.To("t:")}
	}))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	if !c.Preparing || c.Probe {
		t.Errorf("Preparing %v, Probe %v", c.Preparing, c.Probe)
	}
	var got []string
	for _, m := range c.Missing {
		got = append(got, m.Reason+": "+m.Message)
	}
	want := []string{
		"UpstreamModeNotAllowed: upstream mode FrontProxy is not enabled on this proxy installation; allowed_modes opens it",
		"AudienceValidationRequired: upstream mode FrontProxy requires OIDC audience validation: audience_validation is warn on this proxy installation, not enforce",
		"InvalidSpec: spec.upstream_auth.group_prefix: group_prefix is required",
		"ClientCertMissing: Secret proxyauth/" + k8stest.FrontProxyName + " does not exist",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Missing:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c.ClientCertSecret != k8stest.FrontProxyName || c.ClientCertTarget != k8stest.Target {
		t.Errorf("looks for %q, %q", c.ClientCertSecret, c.ClientCertTarget) // REC-3
	}
}

func TestPreparation(t *testing.T) { // REC-7, TRUST-1
	tests := map[string]struct {
		change    func(*v1.ProxyKubeApiSpec)
		noSecret  bool
		preparing bool
		probe     bool
		missing   []string
	}{
		"plain Passthrough": {change: func(*v1.ProxyKubeApiSpec) {}},
		"empty prefixes": {change: func(s *v1.ProxyKubeApiSpec) {
			s.UpstreamAuth = &v1.UpstreamAuth{UserPrefix: ptr.To(""), GroupPrefix: ptr.To("")}
		}},
		"FrontProxy itself":        {change: k8stest.InFrontProxy, probe: true},
		"FrontProxy, no Secret":    {change: k8stest.InFrontProxy, noSecret: true},
		"ready to switch":          {change: k8stest.InPreparation, preparing: true, probe: true},
		"mode left out":            {change: func(s *v1.ProxyKubeApiSpec) { k8stest.InPreparation(s); s.UpstreamAuth.Mode = "" }, preparing: true, probe: true},
		"only a group prefix":      {change: func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth = &v1.UpstreamAuth{GroupPrefix: ptr.To("t:")} }, preparing: true, missing: []string{k8swatch.ReasonInvalidSpec}},
		"a reserved prefix":        {change: func(s *v1.ProxyKubeApiSpec) { k8stest.InPreparation(s); s.UpstreamAuth.UserPrefix = ptr.To("system:") }, preparing: true},
		"no Secret":                {change: k8stest.InPreparation, noSecret: true, preparing: true, missing: []string{k8swatch.ReasonClientCertMissing}},
		"disabled":                 {change: func(s *v1.ProxyKubeApiSpec) { k8stest.InPreparation(s); s.Enabled = ptr.To(false) }, preparing: true, missing: []string{k8swatch.ReasonDisabled}},
		"an unknown mode prepares": {change: func(s *v1.ProxyKubeApiSpec) { k8stest.InPreparation(s); s.UpstreamAuth.Mode = "Future" }},
		"another rule of admission": {change: func(s *v1.ProxyKubeApiSpec) { k8stest.InPreparation(s); s.ClientCert = &v1.ClientCert{} },
			preparing: true, probe: true, missing: []string{k8swatch.ReasonInvalidSpec}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if !test.noSecret {
				b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
			}
			b.put(k8stest.Object(test.change))
			c := b.compile()
			var missing []string
			for _, m := range c.Missing {
				missing = append(missing, m.Reason)
			}
			if c.Preparing != test.preparing || c.Probe != test.probe || !reflect.DeepEqual(missing, test.missing) {
				t.Errorf("Preparing %v, Probe %v, Missing %v; want %v, %v, %v", c.Preparing, c.Probe, missing, test.preparing, test.probe, test.missing)
			}
		})
	}
}

// A cluster that can be probed has a certificate and a CA to do it with.
func TestSwitchingTheModeKeepsTheTrustKey(t *testing.T) { // TRUST-2
	b := newBench(t)
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
	b.put(k8stest.Object(k8stest.InPreparation))
	before := b.compile()
	b.put(k8stest.Object(k8stest.InFrontProxy))
	after := b.compile()
	if before.TrustKey() != after.TrustKey() {
		t.Error("the switch made a new set")
	}
	if before.CredentialID() == after.CredentialID() {
		t.Error("connections without the certificate pass for connections with it")
	}
	b.removeSecret(k8stest.ProxyNamespace, k8stest.FrontProxyName)
	b.put(k8stest.Object())
	if plain := b.compile(); plain.CredentialID() != before.CredentialID() {
		t.Error("preparation touched the connections of the relay (REC-7)")
	}
}

func TestCompileReturnsTheSameValueWhileNothingChanges(t *testing.T) {
	b := newBench(t)
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
	b.putSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "ca"}, Data: map[string][]byte{"ca.crt": k8stest.Certificate(t).Crt}})
	o := k8stest.Object(k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) {
		s.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: "ca", Key: "ca.crt"}}
	})
	b.put(o)
	c := b.compile()
	b.now = b.now.Add(1)
	if b.compile() != c {
		t.Error("a new value though nothing changed")
	}
	o.Generation++
	changed := b.compile()
	if changed == c || changed.Generation != 8 {
		t.Error("the same value though the generation changed")
	}
	if changed.CA != c.CA || changed.FrontProxy != c.FrontProxy || &changed.Auth.JWT[0] != &c.Auth.JWT[0] {
		t.Error("compiled again what did not change")
	}
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
	if renewed := b.compile(); renewed == changed || renewed.TrustKey() == changed.TrustKey() {
		t.Error("the same value though the certificate changed")
	}
}

// An object of the same name is another object.
func TestANewUIDInheritsNothing(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: "ca", Key: "ca.crt"}}
	}))
	b.putSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "ca"}, Data: map[string][]byte{"ca.crt": k8stest.Certificate(t).Crt}})
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.removeSecret("team-a", "ca")
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.store.Objects[k8stest.Key].ProxyKubeApi.UID = "uid-2"
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonReferenceNotFound)
}

func TestNoticesAreSortedAndMerged(t *testing.T) {
	got := k8swatch.MergeByType([]k8swatch.Condition{k8swatch.Notice("B", "one"), k8swatch.Notice("A", "two"), k8swatch.Notice("B", "three")})
	want := []k8swatch.Condition{k8swatch.Notice("A", "two"), k8swatch.Notice("B", "one; three")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("mergeByType: %v", got)
	}
}

func TestLongMessagesAreBounded(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Revalidate = func(*v1.ProxyKubeApi) (errs field.ErrorList) {
			for i := range 1000 {
				errs = append(errs, field.Invalid(field.NewPath("spec").Index(i), nil, "wrong"))
			}
			return errs
		}
	})
	b.put(k8stest.Object())
	if n := len(b.compile().Ready.Message); n > k8swatch.MaxMessage {
		t.Errorf("a message of %d bytes", n)
	}
	b = newBench(t)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.UpstreamMode(strings.Repeat("x\n", 5000))}
	}))
	if m := b.compile().Ready.Message; len(m) > 200 || strings.Contains(m, "\n") {
		t.Errorf("a message of %d bytes", len(m))
	}
}

// A compilation changes neither what it is given nor anything that a later one
// depends on: the same input gives the same result, whatever came in between.
func TestCompileIsPure(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object(k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) {
		s.Cert = &v1.CertSource{Secret: refTo("ca", "ca.crt")}
	}))
	good := k8stest.FrontProxySecret(k8stest.Certificate(t))
	b.putSecret(good)
	b.putCA(map[string][]byte{"ca.crt": k8stest.Certificate(t).Crt})
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	before := b.carried[k8stest.Key]

	fail := func() {
		b.fail(caRead, k8stest.ErrForbidden())
		b.fail(k8stest.FrontProxyRead, k8stest.ErrForbidden())
	}
	fail()
	stale, _ := b.Compile(b.store, k8stest.Key, before)
	k8stest.WantReady(t, stale, k8swatch.ReasonServing)

	// The administrator withdraws the certificate, and the author the CA.
	b.heal(caRead)
	b.heal(k8stest.FrontProxyRead)
	b.removeSecret(good.Namespace, good.Name)
	b.removeSecret("team-a", "ca")
	withdrawn, after := b.Compile(b.store, k8stest.Key, before)
	k8stest.WantReady(t, withdrawn, k8swatch.ReasonClientCertMissing)

	fail()
	again, _ := b.Compile(b.store, k8stest.Key, before)
	if !sameCluster(stale, again) {
		t.Errorf("with the same input: %+v, then %+v", stale, again)
	}
	closed, _ := b.Compile(b.store, k8stest.Key, after)
	if closed.FrontProxy != nil {
		t.Error("a certificate that was withdrawn is back")
	}
}
