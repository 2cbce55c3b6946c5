package admission

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// object is the smallest accepted object, with changes.
func object(changes ...func(map[string]any)) map[string]any {
	o := map[string]any{
		"apiVersion": "weebo.si.rs/v1",
		"kind":       "ProxyKubeApi",
		"metadata":   map[string]any{"name": "prod", "namespace": "default"},
		"spec":       map[string]any{"service": map[string]any{"Agent": map[string]any{}}},
	}
	for _, change := range changes {
		change(o)
	}
	return o
}

func set(name string, value any) func(map[string]any) {
	return func(o map[string]any) { o[name] = value }
}

func setMeta(name string, value any) func(map[string]any) {
	return func(o map[string]any) {
		meta := maps.Clone(o["metadata"].(map[string]any))
		meta[name] = value
		o["metadata"] = meta
	}
}

// What the apiserver does around the schema: type, metadata, status.
func TestAdmitEnvelope(t *testing.T) {
	const subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
	const label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
	tests := []struct {
		name    string
		object  map[string]any
		refused string
	}{
		{"smallest", object(), ""},
		{"dotted name", object(setMeta("name", "a.b")), ""},
		{"labels and annotations", object(setMeta("labels", map[string]any{"a": "b"}), setMeta("annotations", map[string]any{"a": "b c"})), ""},
		{"null metadata fields", object(setMeta("labels", nil), setMeta("creationTimestamp", nil)), ""},
		{"status is dropped, whatever it holds", object(set("status", map[string]any{"path": int64(1)})), ""},
		{"kind", object(set("kind", "Proxy")), "kind: Invalid value: must be ProxyKubeApi"},
		{"version", object(set("apiVersion", "weebo.si.rs/v2")), "apiVersion: Invalid value: must be weebo.si.rs/v1"},
		{"kind of another type", object(set("kind", int64(1))), "kind: Invalid value: must be ProxyKubeApi"},
		{"no name", object(setMeta("name", "")), "metadata.name: Required value: name or generateName is required; other rules were not checked"},
		{"no namespace", object(setMeta("namespace", "")), "metadata.namespace: Required value; other rules were not checked"},
		{"no metadata", object(set("metadata", nil)), "metadata.name: Required value: name or generateName is required; metadata.namespace: Required value; other rules were not checked"},
		{"upper-case name", object(setMeta("name", "Prod")), "metadata.name: Invalid value: " + subdomain},
		{"dotted namespace", object(setMeta("namespace", "a.b")), "metadata.namespace: Invalid value: must not contain dots"},
		{"upper-case namespace", object(setMeta("namespace", "A")), "metadata.namespace: Invalid value: " + label},
		{"name and spec", object(setMeta("name", "_"), set("spec", map[string]any{"service": map[string]any{}})), "metadata.name: Invalid value: " + subdomain + "; spec.service: Invalid value: service: exactly one of ExternalService, KubernetesService, Agent must be set"},
		{"unknown field", object(set("specs", nil)), `unknown field "specs"`},
		{"unknown metadata", object(setMeta("labls", nil)), `unknown field "metadata.labls"`},
		{"unknown status", object(set("status", map[string]any{"readyy": true})), `unknown field "status.readyy"`},
		{"label of another type", object(setMeta("labels", map[string]any{"a": int64(1)})), "the object cannot be decoded: a field has the wrong type"},
		{"metadata of another type", object(set("metadata", "text")), "the object cannot be decoded: a field has the wrong type"},
		{"no spec", object(func(o map[string]any) { delete(o, "spec") }), "spec: Required value; other rules were not checked"},
		{"control characters in a field name", object(set("a\nb\x1b[31m", true)), `unknown field "a?b?[31m"`},
		{"a long field name", object(set(strings.Repeat("é", 400), true)), `unknown field "` + strings.Repeat("é", 192) + "…"},
	}
	v := newValidator(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			typed, refused := refusal(t, v, test.object)
			if refused != nil {
				got = refused.Text()
			} else if typed.Status != nil {
				t.Errorf("status = %v, want none", typed.Status)
			}
			if diff := cmp.Diff(test.refused, got); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdmitDefaults(t *testing.T) {
	raw := object(set("spec", map[string]any{
		"service":         map[string]any{"Agent": map[string]any{}},
		"auth_config":     map[string]any{"token_exchange": map[string]any{}, "oidc_provider": map[string]any{}},
		"upstream_auth":   map[string]any{},
		"security_config": map[string]any{"fail2login_equal_ban": map[string]any{}, "rate_limiting": map[string]any{}},
		"virtual_apis":    []any{map[string]any{"kind": "OpenShiftProject"}},
	}))
	got, refused := refusal(t, newValidator(t), raw)
	if refused != nil {
		t.Fatal(refused)
	}
	want := v1.ProxyKubeApiSpec{
		Enabled: ptr.To(true),
		Service: v1.Service{Agent: &v1.Agent{}},
		AuthConfig: &v1.AuthConfig{
			ValidateAgainst: v1.ValidateKubernetes,
			OidcProvider:    &v1.OidcProvider{ClaimsSource: v1.ClaimsSourceUserInfo},
			JWT:             []v1.JWTAuthenticator{},
			TokenExchange:   &v1.TokenExchange{Forward: v1.ForwardIDToken},
		},
		UpstreamAuth: &v1.UpstreamAuth{Mode: v1.ModePassthrough},
		SecurityConfig: &v1.SecurityConfig{
			Enabled:                  ptr.To(true),
			AllowedResources:         []v1.AllowedResource{},
			AllowedRessources:        []v1.AllowedResource{},
			Fail2LoginEqualBan:       &v1.Fail2LoginEqualBan{MaxFailedLogins: ptr.To[int64](5), BanDuration: ptr.To[int64](300)},
			RateLimiting:             &v1.RateLimiting{MaxRequestsPerMinute: ptr.To[int64](60)},
			PerUserGroupRateLimiting: []v1.GroupRateLimiting{},
		},
		VirtualAPIs: []v1.VirtualAPI{{Kind: "OpenShiftProject", Enabled: ptr.To(true)}},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if _, changed := raw["spec"].(map[string]any)["enabled"]; changed {
		t.Error("Admit changed what it was given")
	}
}

// API-3 and UpstreamModeUnknown: an unknown mode passes the re-check, nothing
// else does.
func TestRevalidate(t *testing.T) {
	v := newValidator(t)
	typed := func(change func(*v1.ProxyKubeApi)) *v1.ProxyKubeApi {
		p := &v1.ProxyKubeApi{}
		p.Spec.Service.Agent = &v1.Agent{}
		change(p)
		return p
	}
	tests := []struct {
		name   string
		object *v1.ProxyKubeApi
		want   string
	}{
		{"smallest", typed(func(p *v1.ProxyKubeApi) {}), ""},
		{"unknown mode", typed(func(p *v1.ProxyKubeApi) { p.Spec.UpstreamAuth = &v1.UpstreamAuth{Mode: "Impersonate"} }), ""},
		{"metadata is not looked at", typed(func(p *v1.ProxyKubeApi) { p.Name = "_" }), ""},
		{"nor is the status", typed(func(p *v1.ProxyKubeApi) {
			p.Status = &v1.ProxyKubeApiStatus{Conditions: []metav1.Condition{{Type: "A"}, {Type: "A"}}}
		}), ""},
		{"another enum", typed(func(p *v1.ProxyKubeApi) { p.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: "Ldap"} }),
			`spec.auth_config.validate_against: Unsupported value: supported values: "OidcProvider", "Kubernetes", "JwtAuthenticators"; other rules were not checked`},
		{"a rule, with defaults in force", typed(func(p *v1.ProxyKubeApi) {
			p.Spec.AuthConfig = &v1.AuthConfig{}
			p.Spec.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.ModeFrontProxy, UserPrefix: ptr.To("a"), GroupPrefix: ptr.To("a")}
		}), "spec.auth_config.validate_against: Invalid value: FrontProxy cannot be used with validate_against: Kubernetes (the SelfSubjectReview needs an apiserver that already knows the identity provider); set auth_config.validate_against to OidcProvider or JwtAuthenticators"},
		{"nothing at all", &v1.ProxyKubeApi{}, "spec.service: Invalid value: service: exactly one of ExternalService, KubernetesService, Agent must be set"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := test.object.DeepCopy()
			if diff := cmp.Diff(test.want, Text(v.Revalidate(test.object))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.object); diff != "" {
				t.Errorf("the object changed:\n%s", diff)
			}
		})
	}
}

// An object that is older than the CRD may have any shape.
func TestRevalidateRaw(t *testing.T) {
	v := newValidator(t)
	service := map[string]any{"Agent": map[string]any{}}
	tests := []struct {
		name   string
		object map[string]any
		want   string
		read   func(*v1.ProxyKubeApi) bool
	}{
		{"good", object(), "", func(p *v1.ProxyKubeApi) bool { return p.Name == "prod" && *p.Spec.Enabled }},
		{"unknown fields are dropped", object(set("spec", map[string]any{"service": service, "ldap": true})), "",
			func(p *v1.ProxyKubeApi) bool { return p.Spec.Service.Agent != nil }},
		{"unknown mode", object(set("spec", map[string]any{"service": service, "upstream_auth": map[string]any{"mode": "Impersonate"}})), "",
			func(p *v1.ProxyKubeApi) bool { return p.Spec.UpstreamAuth.Mode == "Impersonate" }},
		{"a field of another type", object(set("spec", map[string]any{"service": service, "enabled": "yes"}), set("status", map[string]any{"path": "/p"})),
			`spec.enabled: Invalid value: spec.enabled in body must be of type boolean: "string"; other rules were not checked`,
			func(p *v1.ProxyKubeApi) bool {
				return p.Name == "prod" && p.Spec.Service.Agent == nil && *p.Status.Path == "/p"
			}},
		{"no object at all", object(set("spec", "text"), set("metadata", "text")),
			`spec: Invalid value: spec in body must be of type object: "string"; other rules were not checked`,
			func(p *v1.ProxyKubeApi) bool { return p.Kind == "ProxyKubeApi" && p.Name == "" }},
		{"empty", map[string]any{}, "spec: Required value; other rules were not checked", func(p *v1.ProxyKubeApi) bool { return true }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			typed, errs := v.RevalidateRaw(test.object)
			if diff := cmp.Diff(test.want, Text(errs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !test.read(typed) {
				t.Errorf("read %+v", typed)
			}
		})
	}
}

// SIG-3: the text of a refusal holds no value, whatever is wrong with it.
func TestTextHoldsNoValue(t *testing.T) {
	const canary = "hunter2-hunter2"
	v := newValidator(t)
	eachNode(t, func(t *testing.T, spec any, n node) {
		for _, value := range []any{
			canary,
			strings.Repeat(canary, 9000),
			"system:" + canary + "\x00",
			[]any{canary},
			map[string]any{"name": []any{canary}},
		} {
			_, refused := refusal(t, v, with(t, spec, n.path, value))
			if refused != nil && strings.Contains(refused.Text(), "hunter2") {
				t.Errorf("the text holds the value: %s", refused.Text())
			}
		}
	})
}

func TestTextIsBounded(t *testing.T) {
	fields := map[string]any{}
	for i := range 100 {
		fields[fmt.Sprintf("%03d%s", i, strings.Repeat("x", 1000))] = true
	}
	_, refused := refusal(t, newValidator(t), object(set("spec", fields)))
	text := refused.Text()
	if len(text) > 8*420 || !strings.HasSuffix(text, "; and 92 more") {
		t.Errorf("%d bytes: …%s", len(text), text[max(0, len(text)-40):])
	}
}

func TestRefusalStatus(t *testing.T) {
	v := newValidator(t)
	_, refused := refusal(t, v, object(set("x", true)))
	if got, want := refused.Error(), `ProxyKubeApi in version "v1" cannot be handled as a ProxyKubeApi: strict decoding error: unknown field "x"`; got != want {
		t.Errorf("Error = %s, want %s", got, want)
	}
	_, refused = refusal(t, v, object(set("spec", map[string]any{"service": map[string]any{}})))
	if got, want := refused.Error(), `ProxyKubeApi.weebo.si.rs "prod" is invalid: spec.service: Invalid value: service: exactly one of ExternalService, KubernetesService, Agent must be set`; got != want {
		t.Errorf("Error = %s, want %s", got, want)
	}
	if code := refused.Status().Status().Code; code != 422 {
		t.Errorf("code = %d, want 422", code)
	}
}

// The apiserver refuses a CRD whose rules may cost too much, or are not CEL.
func TestCRDIsAcceptable(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(v1.CRD), &crd); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil); err != nil {
		t.Fatal(err)
	}
	internal.Status.StoredVersions = []string{"v1"}
	if errs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), &internal); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestConcurrentUse(t *testing.T) {
	v := newValidator(t)
	cases := readCases[ruleCase](t, "rules.yaml")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, c := range cases {
				typed, err := v.Admit(c.object())
				if accepted := err == nil; accepted != (c.Refused == "") {
					t.Errorf("%s: %v", c.Name, err)
				} else if accepted && len(v.Revalidate(typed)) > 0 {
					t.Errorf("%s: refused at the re-check", c.Name)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzAdmit(f *testing.F) {
	for _, c := range readCases[verdictCase](f, "cases.yaml") {
		text, err := utiljson.Marshal(c.Object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	v := newValidator(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		var raw map[string]any
		if utiljson.Unmarshal(text, &raw) != nil {
			return
		}
		typed, err := v.Admit(raw)
		if (typed == nil) == (err == nil) {
			t.Fatalf("Admit = %v, %v", typed, err)
		}
		if err == nil {
			if errs := v.Revalidate(typed); len(errs) > 0 {
				t.Fatalf("the re-check refuses what was admitted: %v", errs)
			}
		}
		if typed, _ := v.RevalidateRaw(raw); typed == nil {
			t.Fatal("RevalidateRaw read nothing")
		}
	})
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := New(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	v := newValidator(b)
	cases := map[string]map[string]any{
		"typical": readCases[verdictCase](b, "cases.yaml")[0].Object,
		"full":    readCases[ruleCase](b, "full.yaml")[0].object(),
	}
	for name, object := range cases {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Admit(object); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRevalidate(b *testing.B) {
	v := newValidator(b)
	typed, err := v.Admit(readCases[ruleCase](b, "full.yaml")[0].object())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if errs := v.Revalidate(typed); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
