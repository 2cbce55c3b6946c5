package hub

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

// testHub is a source without a hub: tests write what the watches would, and
// reads by name are answered here. It lives in a bubble of testing/synctest.
type testHub struct {
	*Source
	t       *testing.T
	version int

	mu     sync.Mutex
	values map[k8swatch.Change]metav1.Object
	errs   map[k8swatch.Change]error
	asked  map[k8swatch.Change]int
	// stuck makes reads wait for their context.
	stuck        map[k8swatch.Change]bool
	atOnce, most int
}

// inHub runs a test on a source whose first full list is in force.
func inHub(t *testing.T, change func(*Options), test func(h *testHub)) {
	t.Helper()
	inUnlistedHub(t, change, func(h *testHub) {
		h.showAll()
		test(h)
	})
}

func inUnlistedHub(t *testing.T, change func(*Options), test func(h *testHub)) {
	t.Helper()
	validator, err := admission.Default()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		o := Options{Namespace: k8stest.ProxyNamespace}
		if change != nil {
			change(&o)
		}
		h := &testHub{
			Source: newSource(o, validator), t: t,
			values: map[k8swatch.Change]metav1.Object{}, errs: map[k8swatch.Change]error{}, asked: map[k8swatch.Change]int{}, stuck: map[k8swatch.Change]bool{},
		}
		h.get = h.answer
		h.running = t.Context()
		h.startReaders(t.Context())
		h.labelledSynced = true
		test(h)
	})
}

func (h *testHub) answer(ctx context.Context, id k8swatch.Change) (metav1.Object, error) {
	h.mu.Lock()
	h.asked[id]++
	h.atOnce++
	h.most = max(h.most, h.atOnce)
	stuck := h.stuck[id]
	h.mu.Unlock()
	if stuck {
		<-ctx.Done()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.atOnce--
	if stuck {
		return nil, ctx.Err()
	}
	if err := h.errs[id]; err != nil {
		return nil, err
	}
	if value := h.values[id]; value != nil {
		return value, nil
	}
	return nil, apierrors.NewNotFound(resourceOf(id.Kind), id.Name)
}

func (h *testHub) times(id k8swatch.Change) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[id]
}

func (h *testHub) answerWith(id k8swatch.Change, value metav1.Object, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values[id], h.errs[id] = value, err
}

// stick makes reads of a reference hang, or no longer.
func (h *testHub) stick(id k8swatch.Change, stuck bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stuck[id] = stuck
}

func (h *testHub) locked(f func()) {
	h.Source.mu.Lock()
	defer h.Source.mu.Unlock()
	f()
}

func (h *testHub) nextVersion() string {
	h.version++
	return strconv.Itoa(h.version)
}

// event is what a watch of ProxyKubeApis says.
func (h *testHub) event(key k8swatch.Key, uid types.UID, spec v1.ProxyKubeApiSpec) {
	object := &v1.ProxyKubeApi{Spec: spec}
	object.Namespace, object.Name, object.UID, object.ResourceVersion = key.Namespace, key.Name, uid, h.nextVersion()
	h.locked(func() { h.putObject(key, &k8swatch.Object{ProxyKubeApi: object}) })
}

func (h *testHub) secret(name, value string, labelled bool) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{"ca.crt": []byte(value)}}
	s.Name, s.UID, s.ResourceVersion = name, types.UID("uid-"+name), h.nextVersion()
	if labelled {
		s.Labels = map[string]string{k8swatch.ManagedByLabel: k8swatch.ManagedByValue}
	}
	return s
}

// changes are those told since the last call, without their order of arrival.
func (h *testHub) changes() []string {
	var all []string
	for _, c := range h.takePending() {
		all = append(all, c.Kind+" "+c.Namespace+"/"+c.Name)
	}
	slices.Sort(all)
	return all
}

// shownCA is what the version that is shown names as its CA.
func (h *testHub) shownCA(key k8swatch.Key) string {
	o := h.Object(key)
	if o == nil {
		return "no object"
	}
	if c := o.ProxyKubeApi.Spec.Cert; c != nil && c.Secret != nil {
		return c.Secret.Name
	}
	return "none"
}

func secretID(namespace, name string) k8swatch.Change {
	return k8swatch.Change{Kind: k8swatch.KindSecret, Namespace: namespace, Name: name}
}

func specWithCA(name string) v1.ProxyKubeApiSpec {
	return v1.ProxyKubeApiSpec{
		Service: v1.Service{ExternalService: &v1.ExternalService{URL: k8stest.URL}},
		Cert:    &v1.CertSource{Secret: &v1.KeyReference{Name: name, Key: "ca.crt"}},
	}
}

func toUnstructured(t testing.TB, json string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(json)); err != nil {
		t.Fatal(err)
	}
	return u
}

func secretText(s *corev1.Secret, err error) string {
	if err != nil {
		return reference.Fault(err)
	}
	return string(s.Data["ca.crt"])
}
