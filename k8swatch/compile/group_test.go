package compile

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// ACC-1: of two objects with one default group the younger is refused until it names
// a group, and for no longer than there is an older one.
func TestSharedDefaultGroup(t *testing.T) {
	b := newBench(t)
	prod, aProd := k8swatch.Key{Namespace: "team-a", Name: "prod"}, k8swatch.Key{Namespace: "team", Name: "a-prod"}
	exposed := func(s *v1.ProxyKubeApiSpec) { s.ExposeViaDashboard = true }
	put := func(key k8swatch.Key, created time.Time, change func(*v1.ProxyKubeApiSpec)) {
		object := k8stest.Object(change)
		object.Namespace, object.Name, object.UID = key.Namespace, key.Name, ""
		object.CreationTimestamp = metav1.NewTime(created)
		b.store.Objects[key] = &k8swatch.Object{ProxyKubeApi: object}
	}
	change := func(key k8swatch.Key) k8swatch.Change {
		return k8swatch.Change{Kind: k8swatch.KindProxyKubeApi, Namespace: key.Namespace, Name: key.Name}
	}
	refused := func(key k8swatch.Key) bool {
		t.Helper()
		r := b.at(key).Ready
		if r.Status != k8swatch.StatusTrue && (r.Reason != k8swatch.ReasonInvalidSpec || !strings.Contains(r.Message, "dashboard-team-a-prod")) {
			t.Errorf("%s: %+v", key, r)
		}
		return r.Status != k8swatch.StatusTrue
	}
	check := func(what string, prodRefused, aProdRefused bool) {
		t.Helper()
		for key, want := range map[k8swatch.Key]bool{prod: prodRefused, aProd: aProdRefused} {
			if refused(key) != want {
				t.Errorf("%s: %s is refused %t", what, key, !want)
			}
		}
	}
	now := k8stest.Now
	put(prod, now, exposed)
	if refused(prod) {
		t.Error("refused alone")
	}
	if got := b.affected(change(aProd)); len(got) != 2 {
		t.Errorf("a new object with the same default concerns %v", got)
	}
	put(aProd, now.Add(time.Second), exposed)
	check("the younger", false, true)
	put(aProd, now.Add(-time.Second), exposed)
	check("the other is the younger", true, false)
	put(aProd, now, exposed)
	check("of one second", true, false)
	put(aProd, now.Add(-time.Second), func(s *v1.ProxyKubeApiSpec) { exposed(s); s.Enabled = ptr.To(false) })
	if !refused(prod) {
		t.Error("an object that is disabled may be enabled at any time")
	}
	for name, other := range map[string]func(*v1.ProxyKubeApiSpec){
		"not exposed":     func(*v1.ProxyKubeApiSpec) {},
		"dashboard_group": func(s *v1.ProxyKubeApiSpec) { exposed(s); s.DashboardGroup = ptr.To("dashboard-team-a-prod") },
		"proxy_group":     func(s *v1.ProxyKubeApiSpec) { exposed(s); s.ProxyGroup = ptr.To("x") },
	} {
		put(aProd, now.Add(-time.Second), other)
		check(name+" of the older", false, false)
		put(aProd, now.Add(time.Second), other)
		check(name+" of the younger", false, false)
	}
	delete(b.store.Objects, aProd)
	if refused(prod) {
		t.Error("refused after the other was deleted")
	}
}
