package source

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	hubsource "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/hub"
)

// A thousand objects with a reference each cost the hub one read each.
func TestAThousandObjects(t *testing.T) {
	t.Parallel()
	const objects = 1000
	h := newHub(t, v1.CRD)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range objects {
		group.Go(func() error {
			name := fmt.Sprintf("cluster-%d", i)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"ca.crt": []byte(name)}}
			if _, err := h.core.Secrets("team-a").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				return err
			}
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "weebo.si.rs/v1", "kind": "ProxyKubeApi", "metadata": map[string]any{"name": name},
				"spec": map[string]any{
					"service": map[string]any{"ExternalService": map[string]any{"url": "https://10.0.0.1"}},
					"cert":    map[string]any{"Secret": map[string]any{"name": name, "key": "ca.crt"}},
				},
			}}
			_, err := h.objects.Namespace("team-a").Create(t.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	must(t, group.Wait())

	config := h.config()
	start := time.Now()
	// The default: no read is due again before 36 seconds.
	f := follow(t, config, func(o *hubsource.Options) { o.ReferenceTTL = 0 }).started()
	t.Logf("first list of %d objects after %v", len(f.Keys()), time.Since(start).Round(time.Millisecond))
	if len(f.Keys()) != objects {
		t.Fatalf("%d objects", len(f.Keys()))
	}
	eventually(t, "every reference is read", func() bool {
		for i := range objects {
			if name := fmt.Sprintf("cluster-%d", i); f.secret("team-a", name) != name {
				return false
			}
		}
		return true
	})
	h.put("team-a", "cluster-0", external)
	eventually(t, "a change", func() bool { return f.object("team-a", "cluster-0").Spec.Cert == nil })
	f.stop()
	gets := h.Requests(t, func(e *auditv1.Event) bool { return e.Verb == "get" })
	took := time.Since(start)
	t.Logf("%d reads by name in %v", len(gets), took.Round(time.Millisecond))
	if most := objects * (1 + int(took/(36*time.Second))); len(gets) < objects || len(gets) > most {
		t.Errorf("%d reads by name, at most %d are due", len(gets), most)
	}
	h.MustNotHaveBeenForbidden(t)
}
