package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/hub"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// seen is one version of an object, and when it came.
type seen[T any] struct {
	at     time.Time
	object T
}

// feed is every version of the objects of one kind that the hub has told of.
// What it holds, unlike what is polled, misses no state in between.
type feed[T any] struct {
	mu  sync.Mutex
	all []seen[T]
}

// follow watches a collection of the hub until the test ends. The hub ends a
// watch itself when the CRD changes, and tells of all objects anew then.
func follow[T any](t *testing.T, h *hub.Hub, path string) *feed[T] {
	t.Helper()
	client, err := rest.HTTPClientFor(h.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed[T]{}
	started, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for first := true; ctx.Err() == nil; first = false {
			resp, err := watch(ctx, client, h.URL+path)
			if err == nil {
				if first {
					close(started)
				}
				err = f.read(resp.Body)
				resp.Body.Close()
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("watching %s: %v", path, err)
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		client.CloseIdleConnections()
	})
	select {
	case <-started:
	case <-ended:
	}
	return f
}

func watch(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?watch=1", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = errors.New(resp.Status)
	}
	return resp, err
}

// read notes the events of one watch.
func (f *feed[T]) read(body io.Reader) error {
	events := json.NewDecoder(body)
	for {
		var event struct {
			Type   string
			Object T
		}
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case event.Type == "ERROR":
			return fmt.Errorf("the hub sent %+v", event.Object)
		case event.Type != "DELETED":
			f.mu.Lock()
			f.all = append(f.all, seen[T]{time.Now(), event.Object})
			f.mu.Unlock()
		}
	}
}

// since are the versions that came after a time.
func (f *feed[T]) since(from time.Time) []seen[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := len(f.all)
	for i > 0 && f.all[i-1].at.After(from) {
		i--
	}
	return append([]seen[T](nil), f.all[i:]...)
}

// await returns the first version after a time that is as wanted.
func (f *feed[T]) await(from time.Time, within time.Duration, want func(*T) bool) (seen[T], bool) {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		for _, v := range f.since(from) {
			if want(&v.object) {
				return v, true
			}
		}
		if time.Now().After(deadline) {
			return seen[T]{}, false
		}
	}
}

// statuses are those of a cluster after a time.
func (w *world) statuses(key types.NamespacedName, from time.Time) []*v1.ProxyKubeApiStatus {
	var list []*v1.ProxyKubeApiStatus
	for _, v := range w.clusters.since(from) {
		if v.object.Namespace == key.Namespace && v.object.Name == key.Name && v.object.Status != nil {
			list = append(list, v.object.Status)
		}
	}
	return list
}

// status waits for a status after a time that is as wanted, and returns how
// long after that time it came.
func (w *world) status(t *testing.T, key types.NamespacedName, from time.Time, what string, want func(*v1.ProxyKubeApiStatus) bool) (*v1.ProxyKubeApiStatus, time.Duration) {
	t.Helper()
	v, ok := w.clusters.await(from, soon, func(o *v1.ProxyKubeApi) bool {
		return o.Namespace == key.Namespace && o.Name == key.Name && o.Status != nil && want(o.Status)
	})
	if !ok {
		text, _ := json.MarshalIndent(w.hub.Cluster(t, key.Namespace, key.Name).Status, "", " ")
		t.Fatalf("no status of %s with %s within %v, but\n%s", key, what, soon, text)
	}
	return v.object.Status, v.at.Sub(from)
}

// ready waits for Ready in the form "status/reason".
func (w *world) ready(t *testing.T, key types.NamespacedName, from time.Time, want string) *v1.ProxyKubeApiStatus {
	t.Helper()
	s, _ := w.status(t, key, from, "Ready "+want, func(s *v1.ProxyKubeApiStatus) bool { return hub.Condition(s, "Ready") == want })
	return s
}

// event waits for an Event about a cluster after a time. Of the eleventh and
// later that are alike, client-go's correlator makes one, which holds the newest message.
func (w *world) event(t *testing.T, key types.NamespacedName, from time.Time, kind, reason, text string) {
	t.Helper()
	_, ok := w.events.await(from, soon, func(e *corev1.Event) bool {
		return e.InvolvedObject.Kind == v1.Kind && e.InvolvedObject.Namespace == key.Namespace && e.InvolvedObject.Name == key.Name &&
			e.Type == kind && e.Reason == reason && contains(e.Message, text)
	})
	if !ok {
		t.Errorf("no %s Event %s about %s with %q", kind, reason, key, text)
	}
}

// trust is that of a status, empty for none.
func trust(s *v1.ProxyKubeApiStatus) v1.Trust {
	if s.UpstreamAuth == nil {
		return ""
	}
	return s.UpstreamAuth.Trust
}
