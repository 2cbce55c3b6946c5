package serving

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
)

var recreated = k8swatch.Key{Namespace: "team-a", Name: "a"}

// oneObject is a source of one object, without anything it could refer to.
type oneObject struct {
	mu     sync.Mutex
	object *v1.ProxyKubeApi
}

func (s *oneObject) put(uid string) {
	object := &v1.ProxyKubeApi{Spec: v1.ProxyKubeApiSpec{
		Service:    v1.Service{ExternalService: &v1.ExternalService{URL: "https://127.0.0.1:1"}},
		AuthConfig: &v1.AuthConfig{DisableValidation: true},
	}}
	object.Namespace, object.Name, object.UID = recreated.Namespace, recreated.Name, types.UID(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object = object
}

var errNothing = errors.New("there is nothing else")

func (s *oneObject) Keys() []k8swatch.Key { return []k8swatch.Key{recreated} }

func (s *oneObject) Object(k8swatch.Key) *k8swatch.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &k8swatch.Object{ProxyKubeApi: s.object}
}
func (s *oneObject) Secret(_, _ string) (*corev1.Secret, error)       { return nil, errNothing }
func (s *oneObject) ConfigMap(_, _ string) (*corev1.ConfigMap, error) { return nil, errNothing }
func (s *oneObject) Service(_, _ string) (*corev1.Service, error)     { return nil, errNothing }

func (s *oneObject) Run(ctx context.Context, _ func(...k8swatch.Change)) error {
	<-ctx.Done()
	return nil
}

// STREAM-1: an object that was deleted and created again between two looks is
// another one: the streams of the first end, and those of the second go on.
func TestRecreatedBetweenTwoLooks(t *testing.T) {
	rt := newTestRuntime(newTestProcess()).serve()
	source := &oneObject{}
	validator, err := admission.Default()
	if err != nil {
		t.Fatal(err)
	}
	look := func(uid string) *Cluster {
		source.put(uid)
		rt.pending.add()
		rt.compile()
		return rt.clusters()[recreated]
	}
	rt.source = source
	rt.compiler = compile.New(compile.Options{Namespace: "proxyauth", Revalidate: validator.Revalidate})
	rt.carried = map[k8swatch.Key]compile.Carried{}

	first := look("1")
	stream := openWatch(t, rt, "a")
	mustFlow(t, stream)
	if again := look("1"); again != first {
		t.Fatal("the same object is another cluster")
	}
	mustFlow(t, stream)
	second := look("2")
	if second.Relay.Streams == first.Relay.Streams || second.Relay.Pair == first.Relay.Pair || second.Trust == first.Trust {
		t.Error("the second takes over from the first")
	}
	mustEnd(t, stream)
	after := openWatch(t, rt, "a")
	mustFlow(t, after)
	look("2")
	mustFlow(t, after)
}
