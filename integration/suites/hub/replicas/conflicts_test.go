package replicas

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// contender is another writer of the same object.
type contender struct {
	objects dynamic.ResourceInterface
	writes  int
}

func (w *world) contender(t *testing.T) *contender {
	t.Helper()
	client, err := dynamic.NewForConfig(w.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &contender{objects: client.Resource(v1.SchemeGroupVersionResource).Namespace(namespace)}
}

// patch changes the object, or a subresource, and returns what that left.
func (c *contender) patch(t *testing.T, patch string, subresource ...string) *v1.ProxyKubeApi {
	t.Helper()
	patched, err := c.objects.Patch(t.Context(), "prod", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	if err != nil {
		t.Fatal(err)
	}
	object := new(v1.ProxyKubeApi)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(patched.Object, object); err != nil {
		t.Fatal(err)
	}
	c.writes++
	return object
}

// conflicts are as many as the proxy puts right at once (REC-8), halved: one conflict
// can take two writes.
const conflicts = 10

// testConflicts: another client goes on changing the object from before the proxy
// writes its status until after it, and forges the status as soon as it is right,
// ten times. So each write meets another version than it was made from.
func testConflicts(t *testing.T, w *world, r *replica) {
	statuses, events := r.writes(t)
	c := w.contender(t)
	for i := range conflicts {
		c.patch(t, saysRefused, "status")
		c.patch(t, fmt.Sprintf(`{"spec":{"proxy_group":"group-%d"}}`, i))
		deadline := time.Now().Add(soon)
		for {
			object := c.patch(t, fmt.Sprintf(`{"metadata":{"annotations":{"contended":"%d"}}}`, c.writes))
			if rightStatus(object) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the status does not converge: %+v", object.Status)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	c.patch(t, `{"spec":{"proxy_group":null}}`)
	w.Eventually(t, "the last generation", func() bool { return rightStatus(w.Cluster(t, namespace, "prod")) })
	after, eventsAfter := r.writes(t)
	t.Logf("%d writes of the status and %d of Events against %d of another writer", after-statuses, eventsAfter-events, c.writes)
	if n := after - statuses; n < conflicts || n >= 3*conflicts {
		t.Errorf("%d writes of the status for %d conflicts", n, conflicts)
	}
	if n := eventsAfter - events; n >= 6*conflicts {
		t.Errorf("%d writes of Events", n)
	}
}

// rightStatus says whether the status is the proxy's, and about this object.
func rightStatus(object *v1.ProxyKubeApi) bool {
	s := object.Status
	return s != nil && s.ObservedGeneration == object.Generation && hub.Condition(s, "Ready") == "True/Serving" &&
		hub.Condition(s, "Reachable") == "True/Answered" && hub.Message(s, "Ready") != "forged" &&
		s.UpstreamAuth != nil && s.UpstreamAuth.Trust == v1.TrustTrusted
}
