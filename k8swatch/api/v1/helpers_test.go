package v1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func TestDefaults(t *testing.T) {
	empty := ProxyKubeApi{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "prod"}}
	set := *empty.DeepCopy()
	set.Spec = ProxyKubeApiSpec{
		Enabled:        ptr.To(false),
		AuthConfig:     &AuthConfig{ValidateAgainst: ValidateOidcProvider},
		UpstreamAuth:   &UpstreamAuth{Mode: ModeFrontProxy, UserPrefix: ptr.To("u:"), GroupPrefix: ptr.To("g:")},
		DashboardGroup: ptr.To("d"),
	}
	tests := []struct {
		name       string
		empty, set any
		want, got  any
	}{
		{"enabled", empty.Spec.EnabledOrDefault(), set.Spec.EnabledOrDefault(), true, false},
		{"mode", empty.Spec.ModeOrDefault(), set.Spec.ModeOrDefault(), ModePassthrough, ModeFrontProxy},
		{"mode of an empty block", (&ProxyKubeApiSpec{UpstreamAuth: &UpstreamAuth{}}).ModeOrDefault(), (&ProxyKubeApiSpec{UpstreamAuth: &UpstreamAuth{Mode: "X"}}).ModeOrDefault(), ModePassthrough, UpstreamMode("X")},
		{"user prefix", empty.Spec.UserPrefixOrDefault(), set.Spec.UserPrefixOrDefault(), "", "u:"},
		{"group prefix", empty.Spec.GroupPrefixOrDefault(), set.Spec.GroupPrefixOrDefault(), "", "g:"},
		{"validator", empty.Spec.ValidateAgainstOrDefault(), set.Spec.ValidateAgainstOrDefault(), ValidateKubernetes, ValidateOidcProvider},
		{"dashboard group", empty.DashboardGroupOrDefault(), set.DashboardGroupOrDefault(), "dashboard-team-a-prod", "d"},
		{"namespace of a Service", (&KubernetesService{}).NamespaceOr("o"), (&KubernetesService{Namespace: ptr.To("n")}).NamespaceOr("o"), "o", "n"},
		{"port", (&KubernetesService{}).NumberOrDefault(), (&KubernetesService{Port: ptr.To[int32](6443)}).NumberOrDefault(), int32(443), int32(6443)},
		{"an empty namespace", (&KubernetesService{Namespace: ptr.To("")}).NamespaceOr("o"), (&KubernetesService{Namespace: ptr.To("n")}).NamespaceOr("o"), "o", "n"},
		{"agent", (&Agent{}).NameOr("o"), (&Agent{Name: "a"}).NameOr("o"), "o", "a"},
		{"security", (&SecurityConfig{}).EnabledOrDefault(), (&SecurityConfig{Enabled: ptr.To(false)}).EnabledOrDefault(), true, false},
		{"virtual API", (&VirtualAPI{}).EnabledOrDefault(), (&VirtualAPI{Enabled: ptr.To(false)}).EnabledOrDefault(), true, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.empty != test.want || test.set != test.got {
				t.Errorf("absent %v, want %v; set %v, want %v", test.empty, test.want, test.set, test.got)
			}
		})
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ProxyKubeApi", "ProxyKubeApiList"} {
		if object, err := scheme.New(SchemeGroupVersion.WithKind(kind)); err != nil || object == nil {
			t.Errorf("New(%s) = %v, %v", kind, object, err)
		}
	}
}
