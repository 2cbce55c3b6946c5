package hub

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func TestAnObjectIsShownOnceItsReferencesWereAskedFor(t *testing.T) {
	ca, other := secretID("team-a", "ca"), secretID("team-a", "other")
	for name, answer := range map[string]func(h *testHub){
		"found":     func(h *testHub) { h.answerWith(ca, h.secret("ca", "A", false), nil) },
		"missing":   func(*testHub) {},
		"forbidden": func(h *testHub) { h.answerWith(ca, nil, k8stest.ErrForbidden()) },
	} {
		t.Run(name, func(t *testing.T) {
			inHub(t, nil, func(h *testHub) {
				answer(h)
				h.event(k8stest.Key, "1", specWithCA("ca"))
				if latest := h.Latest(k8stest.Key); latest == nil || latest.UID != "1" {
					t.Errorf("the latest version is %v", latest)
				}
				synctest.Wait()
				if got := h.shownCA(k8stest.Key); got != "ca" {
					t.Errorf("shown: %s", got)
				}
				if diff := cmp.Diff([]string{"ProxyKubeApi team-a/prod", "Secret team-a/ca"}, h.changes()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
	t.Run("a change waits, and the old references stay meanwhile", func(t *testing.T) {
		inHub(t, nil, func(h *testHub) {
			h.answerWith(ca, h.secret("ca", "A", false), nil)
			h.event(k8stest.Key, "1", specWithCA("ca"))
			synctest.Wait()
			h.stick(other, true)
			h.event(k8stest.Key, "1", specWithCA("other"))
			time.Sleep(showLimit - time.Millisecond)
			if got := h.shownCA(k8stest.Key); got != "ca" {
				t.Errorf("shown before the time: %s", got)
			}
			if got := secretText(h.Secret("team-a", "ca")); got != "A" {
				t.Errorf("the reference of the version in force: %s", got)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if got := h.shownCA(k8stest.Key); got != "other" {
				t.Errorf("shown after the time: %s", got)
			}
			if got := secretText(h.Secret("team-a", "ca")); got != "the read failed" {
				t.Errorf("a reference that no object names: %s", got)
			}
		})
	})
	t.Run("an author who keeps changing the object does not hold it back", func(t *testing.T) {
		inHub(t, nil, func(h *testHub) {
			start := time.Now()
			for i := range 30 {
				name := "ca-" + strings.Repeat("x", i)
				h.stick(secretID("team-a", name), true)
				h.event(k8stest.Key, "1", specWithCA(name))
				time.Sleep(100 * time.Millisecond)
				if h.Object(k8stest.Key) != nil {
					break
				}
			}
			if waited := time.Since(start); waited > showLimit+200*time.Millisecond {
				t.Errorf("shown after %v", waited)
			}
		})
	})
}

func TestWhatIsShownAtOnce(t *testing.T) {
	inHub(t, nil, func(h *testHub) {
		h.answerWith(secretID("team-a", "ca"), h.secret("ca", "A", false), nil)
		h.event(k8stest.Key, "1", specWithCA("ca"))
		synctest.Wait()
		h.changes()
		h.stick(secretID("team-a", "slow"), true)

		disabled := specWithCA("slow")
		disabled.Enabled = new(bool)
		h.event(k8stest.Key, "1", disabled)
		if got := h.shownCA(k8stest.Key); got != "slow" {
			t.Errorf("enabled: false waits: %s", got)
		}
		if diff := cmp.Diff([]string{"ProxyKubeApi team-a/prod"}, h.changes()); diff != "" {
			t.Error(diff)
		}

		// Deleted and created again, between two looks.
		h.event(k8stest.Key, "2", specWithCA("slow"))
		if got := h.shownCA(k8stest.Key); got != "no object" {
			t.Errorf("after the deletion: %s", got)
		}
		if diff := cmp.Diff([]string{"ProxyKubeApi team-a/prod"}, h.changes()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(showLimit + time.Millisecond)
		synctest.Wait()
		if o := h.Object(k8stest.Key); o == nil || o.ProxyKubeApi.UID != "2" {
			t.Errorf("the second object: %v", o)
		}
		h.changes()

		h.locked(func() { h.dropObject(k8stest.Key) })
		if got := h.shownCA(k8stest.Key); got != "no object" || len(h.Keys()) != 0 || h.Latest(k8stest.Key) != nil {
			t.Errorf("after the deletion: %s, %v", got, h.Keys())
		}
		if diff := cmp.Diff([]string{"ProxyKubeApi team-a/prod"}, h.changes()); diff != "" {
			t.Error(diff)
		}
		if len(h.references) != 0 {
			t.Errorf("references that no object names: %d", len(h.references))
		}
	})
}

// A finalizer keeps an object for as long as its author likes, but not its URL.
func TestAnObjectThatIsBeingDeletedIsGone(t *testing.T) {
	inHub(t, nil, func(h *testHub) {
		h.event(k8stest.Key, "1", specWithCA("ca"))
		synctest.Wait()
		h.changes()
		going := h.Latest(k8stest.Key).DeepCopy()
		now := metav1.Now()
		going.ResourceVersion, going.DeletionTimestamp, going.Finalizers = h.nextVersion(), &now, []string{"team-a.example.com/never"}
		for _, want := range [][]string{{"ProxyKubeApi team-a/prod"}, nil} {
			h.locked(func() { h.putObject(k8stest.Key, &k8swatch.Object{ProxyKubeApi: going}) })
			if h.Object(k8stest.Key) != nil || h.Latest(k8stest.Key) != nil || len(h.Keys()) != 0 || len(h.references) != 0 {
				t.Errorf("it is still there: %v", h.Keys())
			}
			if diff := cmp.Diff(want, h.changes()); diff != "" {
				t.Error(diff)
			}
		}
		h.locked(func() { h.dropObject(k8stest.Key) })
		if diff := cmp.Diff([]string(nil), h.changes()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAChangeOfTheStatusAloneIsTold(t *testing.T) {
	inHub(t, nil, func(h *testHub) {
		h.event(k8stest.Key, "1", specWithCA("ca"))
		synctest.Wait()
		h.changes()
		object := h.Latest(k8stest.Key).DeepCopy()
		path := "/clusters/team-a/prod"
		object.ResourceVersion, object.Status = h.nextVersion(), &v1.ProxyKubeApiStatus{Path: &path}
		h.locked(func() { h.putObject(k8stest.Key, &k8swatch.Object{ProxyKubeApi: object}) })
		if diff := cmp.Diff([]string{"ProxyKubeApi team-a/prod"}, h.changes()); diff != "" {
			t.Error(diff)
		}
		if got := h.Object(k8stest.Key).ProxyKubeApi.Status; got == nil || got.Path == nil || *got.Path != path {
			t.Errorf("status: %v", got)
		}
		// The same version, listed once more.
		h.locked(func() { h.putObject(k8stest.Key, &k8swatch.Object{ProxyKubeApi: object.DeepCopy()}) })
		if diff := cmp.Diff([]string(nil), h.changes()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTheFirstListIsShownAsAWhole(t *testing.T) {
	inUnlistedHub(t, nil, func(h *testHub) {
		h.stick(secretID("team-a", "slow"), true)
		h.event(k8stest.Key, "1", specWithCA("slow"))
		h.event(k8swatch.Key{Namespace: "team-a", Name: "plain"}, "2", v1.ProxyKubeApiSpec{})
		synctest.Wait()
		if len(h.Keys()) != 0 || len(h.changes()) != 0 {
			t.Errorf("shown before the first list: %v", h.Keys())
		}
		if h.unasked != 1 {
			t.Errorf("%d references to wait for", h.unasked)
		}
		h.showAll()
		if len(h.Keys()) != 2 {
			t.Errorf("shown: %v", h.Keys())
		}
	})
}

func TestReplaceTakesNoteOfWhatIsGone(t *testing.T) {
	inHub(t, nil, func(h *testHub) {
		w := &watcher{
			k: h.Source, known: map[k8swatch.Key]bool{}, synced: h.firstSync,
			decode: func(o any) (any, error) { return &k8swatch.Object{ProxyKubeApi: o.(*v1.ProxyKubeApi)}, nil },
			put:    func(key k8swatch.Key, value any) { h.putObject(key, value.(*k8swatch.Object)) },
			drop:   h.dropObject,
		}
		h.unsynced = 1
		object := func(name string) any {
			return &v1.ProxyKubeApi{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, ResourceVersion: "1"}}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(w.Replace([]any{object("a"), object("b")}, ""))
		must(w.Add(object("c")))
		synctest.Wait()
		if len(h.Keys()) != 3 || h.unsynced != 0 {
			t.Fatalf("%v, %d watches to wait for", h.Keys(), h.unsynced)
		}
		h.changes()
		must(w.Replace([]any{object("b"), object("d")}, ""))
		if diff := cmp.Diff([]string{"ProxyKubeApi team-a/a", "ProxyKubeApi team-a/c", "ProxyKubeApi team-a/d"}, h.changes()); diff != "" {
			t.Error(diff)
		}
		must(w.Delete(object("d")))
		if len(h.Keys()) != 1 || h.unsynced != 0 {
			t.Errorf("%v, %d watches to wait for", h.Keys(), h.unsynced)
		}
	})
}

func TestDecodeObject(t *testing.T) {
	const head = `{"apiVersion":"weebo.si.rs/v1","kind":"ProxyKubeApi","metadata":{"namespace":"team-a","name":"prod","uid":"u","resourceVersion":"7","generation":3,
		"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","a":"b"},"managedFields":[{"manager":"kubectl"}]},`
	for _, tt := range []struct {
		name, rest string
		invalid    string
		status     bool
		going      bool
	}{
		{name: "well formed", rest: `"spec":{"service":{"ExternalService":{"url":"https://a"}}},"status":{"path":"/x"}}`, status: true},
		{name: "an unknown field is dropped", rest: `"spec":{"later":1,"service":{"ExternalService":{"url":"https://a"}}}}`},
		{name: "a text where an object belongs", rest: `"spec":{"service":"https://a"},"status":{"path":"/x"}}`, invalid: "spec.service", status: true},
		{name: "a number that does not fit", rest: `"spec":{"service":{"KubernetesService":{"name":"a","port":4294967739}}}}`, invalid: "port"},
		{name: "a required field is missing", rest: `"spec":{"service":{"ExternalService":{"url":"https://a"}},"security_config":{"per_user_group_rate_limiting":[{"group":"a"}]}}}`, invalid: "max_requests_per_minute: is required"},
		{name: "no spec", rest: `"spec":null}`, invalid: "spec: is required"},
		{name: "an object of another shape that is being deleted", rest: `"spec":7}`, invalid: "spec", going: true},
		{name: "a status of another shape", rest: `"spec":{"service":{"ExternalService":{"url":"https://a"}}},"status":[1]}`, invalid: "shape"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inHub(t, nil, func(h *testHub) {
				u := toUnstructured(t, head+tt.rest)
				if tt.going {
					now := metav1.Now()
					u.SetDeletionTimestamp(&now)
				}
				o := h.decodeObject(u)
				if going := o.ProxyKubeApi.DeletionTimestamp != nil; going != tt.going {
					t.Errorf("being deleted: %v", going)
				}
				switch {
				case tt.invalid == "" && o.Invalid != "":
					t.Errorf("invalid: %s", o.Invalid)
				case tt.invalid != "" && !strings.Contains(o.Invalid, tt.invalid):
					t.Errorf("invalid: %q, want it to name %q", o.Invalid, tt.invalid)
				}
				p := o.ProxyKubeApi
				if p.Namespace != "team-a" || p.Name != "prod" || p.UID != "u" || p.ResourceVersion != "7" || p.Generation != 3 {
					t.Errorf("identity: %+v", p.ObjectMeta)
				}
				if p.ManagedFields != nil || len(p.Annotations) != 1 {
					t.Errorf("kept: %v, %v", p.ManagedFields, p.Annotations)
				}
				if tt.status != (p.Status != nil) {
					t.Errorf("status: %v", p.Status)
				}
			})
		})
	}
}

// API-4, API-5: what an object may not refer to is never asked for, nor what
// this version makes nothing of (CRD-02).
func TestNeeds(t *testing.T) {
	elsewhere, opened, own := "team-b", "shared", k8stest.ProxyNamespace
	ref := func(name string, namespace *string) *v1.CertSource {
		return &v1.CertSource{Secret: &v1.KeyReference{Name: name, Key: "k", Namespace: namespace}}
	}
	frontProxy := &v1.UpstreamAuth{Mode: v1.ModeFrontProxy}
	for _, tt := range []struct {
		name string
		spec v1.ProxyKubeApiSpec
		want []string
	}{
		{name: "nothing", spec: v1.ProxyKubeApiSpec{}},
		{name: "own namespace", spec: v1.ProxyKubeApiSpec{Cert: ref("ca", nil)}, want: []string{"Secret team-a/ca"}},
		{name: "a ConfigMap", spec: v1.ProxyKubeApiSpec{Cert: &v1.CertSource{ConfigMap: &v1.KeyReference{Name: "ca", Key: "k"}}}, want: []string{"ConfigMap team-a/ca"}},
		{name: "an opened namespace", spec: v1.ProxyKubeApiSpec{Cert: ref("ca", &opened)}, want: []string{"Secret shared/ca"}},
		{name: "another namespace", spec: v1.ProxyKubeApiSpec{Cert: ref("ca", &elsewhere)}},
		{name: "the proxy's namespace", spec: v1.ProxyKubeApiSpec{Cert: ref("ca", &own)}},
		{name: "a protected name", spec: v1.ProxyKubeApiSpec{Cert: ref("proxyauth-agent-team-a.x", nil)}},
		{name: "a name that is a path", spec: v1.ProxyKubeApiSpec{Cert: ref("../x", nil)}},
		{name: "no key", spec: v1.ProxyKubeApiSpec{Cert: &v1.CertSource{Secret: &v1.KeyReference{Name: "ca"}}}},
		{name: "every place", spec: v1.ProxyKubeApiSpec{
			Cert:        ref("a", nil),
			ClientCert:  &v1.ClientCert{Cert: *ref("b", nil), Key: *ref("c", nil)},
			AuthConfig:  &v1.AuthConfig{OidcProvider: &v1.OidcProvider{ConfigFrom: &v1.ConfigReference{Secret: &v1.SecretReference{Name: "d"}}}},
			VirtualAPIs: []v1.VirtualAPI{{ListFallbackToken: ref("e", nil)}},
		}, want: []string{"Secret team-a/a", "Secret team-a/b", "Secret team-a/c"}},
		{name: "config_from", spec: *configSpec(nil), want: []string{"Secret team-a/d"}},
		{name: "config_from in an opened namespace", spec: *configSpec(func(a *v1.AuthConfig) {
			a.OidcProvider.ConfigFrom.Secret.Namespace = &opened
		}), want: []string{"Secret shared/d"}},
		{name: "config_from in another namespace", spec: *configSpec(func(a *v1.AuthConfig) {
			a.OidcProvider.ConfigFrom.Secret.Namespace = &elsewhere
		})},
		{name: "config_from, another validator", spec: *configSpec(func(a *v1.AuthConfig) { a.ValidateAgainst = v1.ValidateKubernetes })},
		{name: "config_from, no validation", spec: *configSpec(func(a *v1.AuthConfig) { a.DisableValidation = true })},
		{name: "client_cert in FrontProxy", spec: v1.ProxyKubeApiSpec{
			ClientCert: &v1.ClientCert{Cert: *ref("b", nil), Key: *ref("c", nil)}, UpstreamAuth: frontProxy,
		}, want: []string{"Secret proxyauth/" + k8stest.FrontProxyName}},
		{name: "FrontProxy", spec: v1.ProxyKubeApiSpec{UpstreamAuth: frontProxy}, want: []string{"Secret proxyauth/" + k8stest.FrontProxyName}},
		{name: "preparation", spec: v1.ProxyKubeApiSpec{UpstreamAuth: &v1.UpstreamAuth{UserPrefix: &opened}}, want: []string{"Secret proxyauth/" + k8stest.FrontProxyName}},
		{name: "a watched Service", spec: v1.ProxyKubeApiSpec{Service: v1.Service{KubernetesService: &v1.KubernetesService{Name: "api"}}}},
		{name: "a Service elsewhere", spec: v1.ProxyKubeApiSpec{Service: v1.Service{KubernetesService: &v1.KubernetesService{Name: "api", Namespace: &elsewhere}}},
			want: []string{"Service team-b/api"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inHub(t, func(o *Options) {
				o.ReferenceNamespaces = []string{"shared"}
				o.WatchNamespaces = []string{"team-a"}
			}, func(h *testHub) {
				h.event(k8stest.Key, "1", tt.spec)
				synctest.Wait()
				asked := map[string]bool{}
				for id := range h.asked {
					asked[id.Kind+" "+id.Namespace+"/"+id.Name] = true
				}
				want := map[string]bool{}
				for _, id := range tt.want {
					want[id] = true
				}
				if diff := cmp.Diff(want, asked); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// configSpec reads the Secret d for its oidc_provider.
func configSpec(change func(*v1.AuthConfig)) *v1.ProxyKubeApiSpec {
	a := &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider, OidcProvider: &v1.OidcProvider{
		Enabled: true, ConfigFrom: &v1.ConfigReference{Secret: &v1.SecretReference{Name: "d"}},
	}}
	if change != nil {
		change(a)
	}
	return &v1.ProxyKubeApiSpec{AuthConfig: a}
}

func TestAServiceOfAnUnwatchedNamespaceIsReadByName(t *testing.T) {
	inHub(t, func(o *Options) { o.WatchNamespaces = []string{"team-a"} }, func(h *testHub) {
		elsewhere := "team-b"
		id := k8swatch.Change{Kind: k8swatch.KindService, Namespace: elsewhere, Name: "api"}
		h.answerWith(id, nil, k8stest.ErrForbidden())
		h.event(k8stest.Key, "1", v1.ProxyKubeApiSpec{Service: v1.Service{KubernetesService: &v1.KubernetesService{Name: "api", Namespace: &elsewhere}}})
		synctest.Wait()
		if _, err := h.Service(elsewhere, "api"); !apierrors.IsForbidden(err) {
			t.Errorf("a read without the right: %v", err)
		}
		if _, err := h.Service("team-a", "api"); !apierrors.IsNotFound(err) {
			t.Errorf("a Service that the watch does not have: %v", err)
		}
	})
}
