package migration

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// statuses are those of a cluster after a time.
func (w *world) statuses(key types.NamespacedName, from time.Time) []*v1.ProxyKubeApiStatus {
	var list []*v1.ProxyKubeApiStatus
	for _, v := range w.clusters.Since(from) {
		if v.Object.Namespace == key.Namespace && v.Object.Name == key.Name && v.Object.Status != nil {
			list = append(list, v.Object.Status)
		}
	}
	return list
}

// status waits for a status after a time that is as wanted, and returns when it
// came.
func (w *world) status(t *testing.T, key types.NamespacedName, from time.Time, what string, want func(*v1.ProxyKubeApiStatus) bool) (*v1.ProxyKubeApiStatus, time.Time) {
	t.Helper()
	v, ok := w.clusters.Await(from, soon, func(o *v1.ProxyKubeApi) bool {
		return o.Namespace == key.Namespace && o.Name == key.Name && o.Status != nil && want(o.Status)
	})
	if !ok {
		text, _ := json.MarshalIndent(w.hub.Cluster(t, key.Namespace, key.Name).Status, "", " ")
		t.Fatalf("no status of %s with %s within %v, but\n%s", key, what, soon, text)
	}
	return v.Object.Status, v.At
}

// ready waits for Ready in the form "status/reason".
func (w *world) ready(t *testing.T, key types.NamespacedName, from time.Time, want string) *v1.ProxyKubeApiStatus {
	t.Helper()
	s, _ := w.status(t, key, from, "Ready "+want, func(s *v1.ProxyKubeApiStatus) bool { return hub.Condition(s, "Ready") == want })
	return s
}

// event waits for an Event about a cluster after a time, and returns when it
// came. Of the eleventh and later that are alike, client-go's correlator makes
// one, which holds the newest message.
func (w *world) event(t *testing.T, key types.NamespacedName, from time.Time, kind, reason, text string) time.Time {
	t.Helper()
	v, ok := w.events.Await(from, soon, func(e *corev1.Event) bool {
		return e.InvolvedObject.Kind == v1.Kind && e.InvolvedObject.Namespace == key.Namespace && e.InvolvedObject.Name == key.Name &&
			e.Type == kind && e.Reason == reason && contains(e.Message, text)
	})
	if !ok {
		t.Errorf("no %s Event %s about %s with %q", kind, reason, key, text)
	}
	return v.At
}

// trust is that of a status, empty for none.
func trust(s *v1.ProxyKubeApiStatus) v1.Trust {
	if s.UpstreamAuth == nil {
		return ""
	}
	return s.UpstreamAuth.Trust
}
