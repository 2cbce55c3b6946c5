package status

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// writing is a Reconciler whose hub answers as a test says: faults are forced
// here, what a real apiserver does is tested in integration/suites/hub.
type writing struct {
	*Reconciler
	t *testing.T

	mu      sync.Mutex
	object  *v1.ProxyKubeApi
	status  *v1.ProxyKubeApiStatus
	wait    time.Duration
	follows bool                   // no replica leads
	lags    bool                   // the source does not see what is written
	keeps   *v1.ProxyKubeApiStatus // what the hub makes of the status, nil for the same
	version int
	// answers are the codes of the next writes of a status, 200 after them.
	answers []int
	patches []string
	events  []string
}

// inWriting runs a test in a bubble of testing/synctest, where pauses take no
// time.
func inWriting(t *testing.T, test func(t *testing.T, w *writing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &writing{t: t, object: &v1.ProxyKubeApi{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "prod", UID: "u-1", ResourceVersion: "0"}}}
		r, err := NewReconciler(&rest.Config{
			Host: "http://hub.test", Transport: w, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		}, w, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		w.Reconciler = r
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		test(t, w)
	})
}

// RoundTrip answers for the hub.
func (w *writing) RoundTrip(r *http.Request) (*http.Response, error) {
	recorded := httptest.NewRecorder()
	w.answer(recorded, r)
	return recorded.Result(), nil
}

func (w *writing) answer(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/events") {
		w.events = append(w.events, string(body))
		_, _ = rw.Write(body)
		return
	}
	if strings.Contains(r.URL.Path, "/events/") { // a count of the same Event
		_, _ = rw.Write([]byte(`{"kind":"Event","apiVersion":"v1","metadata":{"name":"prod.1","namespace":"team-a"}}`))
		return
	}
	if want := "/apis/weebo.si.rs/v1/namespaces/team-a/proxykubeapis/prod/status"; r.Method != http.MethodPatch || r.URL.Path != want {
		w.t.Errorf("%s %s", r.Method, r.URL)
	}
	w.patches = append(w.patches, string(body))
	if len(w.answers) > 0 {
		code := w.answers[0]
		w.answers = w.answers[1:]
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound}[code]})
		return
	}
	kept := cmp.Or(w.keeps, w.status)
	if !w.lags {
		w.object = w.object.DeepCopy()
		w.put(kept, "proxyauthk8s")
	}
	_ = json.NewEncoder(rw).Encode(v1.ProxyKubeApi{ObjectMeta: metav1.ObjectMeta{ResourceVersion: w.object.ResourceVersion}, Status: kept})
}

// put gives the object a status, as the hub does for a manager. The lock is held.
func (w *writing) put(status *v1.ProxyKubeApiStatus, manager string) {
	w.object = w.object.DeepCopy()
	w.object.Status = status
	w.version++
	w.object.ResourceVersion = strconv.Itoa(w.version)
	now := metav1.Now()
	w.object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Subresource: "status", Time: &now}}
}

func (w *writing) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *writing) Leading() (leads bool) { w.locked(func() { leads = !w.follows }); return leads }

func (w *writing) Keys() []k8swatch.Key { return []k8swatch.Key{k8stest.Key} }

func (w *writing) Latest(k8swatch.Key) (o *v1.ProxyKubeApi) {
	w.locked(func() { o = w.object })
	return o
}

func (w *writing) Status(*v1.ProxyKubeApi) (s *v1.ProxyKubeApiStatus, wait time.Duration) {
	w.locked(func() {
		if s, wait = w.status, w.wait; wait > 0 {
			s, w.wait = nil, 0
		}
	})
	return s, wait
}

func (w *writing) counts() (patches, events int) {
	w.locked(func() { patches, events = len(w.patches), len(w.events) })
	return patches, events
}

// settle waits until so much was written, and a moment longer.
func (w *writing) settle(patches, events int) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		p, e := w.counts()
		if p >= patches && e >= events || time.Now().After(deadline) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	if p, e := w.counts(); p != patches || e != events {
		w.t.Fatalf("%d writes of a status and %d Events, not %d and %d", p, e, patches, events)
	}
}

func ready(status metav1.ConditionStatus, reason string) *v1.ProxyKubeApiStatus {
	return &v1.ProxyKubeApiStatus{Conditions: []metav1.Condition{{Type: k8swatch.ConditionReady, Status: status, Reason: reason, Message: "why"}}}
}

func TestReconcileWritesOnlyChanges(t *testing.T) { // REC-4
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() { w.status = ready("True", k8swatch.ReasonServing) })
		w.EnqueueAll()
		w.settle(1, 1)
		w.Enqueue(k8stest.Key, k8stest.Key)
		w.settle(1, 1)
		w.locked(func() { w.status = ready("False", k8swatch.ReasonClientCertMissing) })
		w.Enqueue(k8stest.Key)
		w.settle(2, 2)
		want := `[{"op":"test","path":"/metadata/uid","value":"u-1"},{"op":"add","path":"/status","value":{`
		if !strings.HasPrefix(w.patches[1], want) {
			t.Errorf("patch %s", w.patches[1])
		}
		var e struct {
			Type, Reason, Message string
			InvolvedObject        struct{ Kind, Name, UID string }
		}
		if err := json.Unmarshal([]byte(w.events[1]), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "Warning" || e.Reason != k8swatch.ReasonClientCertMissing || e.Message != "Ready is False: why" || e.InvolvedObject.UID != "u-1" {
			t.Errorf("event %+v", e)
		}
	})
}

func TestReconcileWaitsForAnswers(t *testing.T) {
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() { w.status, w.wait = ready("True", k8swatch.ReasonServing), 300*time.Millisecond })
		w.Enqueue(k8stest.Key)
		time.Sleep(100 * time.Millisecond)
		if p, _ := w.counts(); p != 0 {
			t.Error("written at once")
		}
		w.settle(1, 1)
	})
}

func TestReconcileOnlyLeads(t *testing.T) { // REC-1
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() { w.status, w.follows = ready("True", k8swatch.ReasonServing), true })
		w.EnqueueAll()
		w.settle(0, 0)
		w.locked(func() { w.follows = false })
		w.EnqueueAll()
		w.settle(1, 1)
	})
}

func TestReconcileTriesAgain(t *testing.T) { // CRD-03
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() { w.status, w.answers = ready("True", k8swatch.ReasonServing), []int{409, 422, 500} })
		w.Enqueue(k8stest.Key)
		w.settle(4, 1)
	})
}

func TestReconcileOfWhatIsGone(t *testing.T) {
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() { w.status, w.answers = ready("True", k8swatch.ReasonServing), []int{404} })
		w.Enqueue(k8stest.Key)
		w.settle(1, 0)
		w.locked(func() { w.object = nil })
		w.Enqueue(k8stest.Key)
		w.settle(1, 0)
	})
}

// A source that lags is no reason to write the same again, nor to tell it again.
func TestReconcileAheadOfTheSource(t *testing.T) {
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() { w.status, w.lags = ready("True", k8swatch.ReasonServing), true })
		w.Enqueue(k8stest.Key)
		w.settle(1, 1)
		time.Sleep(betweenWrites)
		w.Enqueue(k8stest.Key)
		w.settle(1, 1)
		w.locked(func() { w.status = ready("False", k8swatch.ReasonInvalidSpec) })
		w.Enqueue(k8stest.Key)
		w.settle(2, 2)
	})
}

// Others may provoke writes of one object, but not as fast as they like.
func TestReconcileIsBounded(t *testing.T) {
	inWriting(t, func(t *testing.T, w *writing) {
		for i := range 30 {
			w.locked(func() { w.status = ready("False", k8swatch.ReasonInvalidSpec+strings.Repeat("x", i)) })
			w.Enqueue(k8stest.Key)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(betweenWrites)
		if p, _ := w.counts(); p > 8 {
			t.Errorf("%d writes", p)
		}
		w.locked(func() {
			if got := w.object.Status.Conditions[0].Reason; got != k8swatch.ReasonInvalidSpec+strings.Repeat("x", 29) {
				t.Errorf("the last status was not written, but %s", got)
			}
		})
	})
}
