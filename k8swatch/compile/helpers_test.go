package compile

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// bench compiles objects from a memory, with a clock that can be set.
type bench struct {
	t       testing.TB
	store   *k8stest.Memory
	options Options
	now     time.Time
	*Compiler
	carried map[k8swatch.Key]Carried
}

func newBench(t testing.TB, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, store: k8stest.NewMemory(), now: k8stest.Now, carried: map[k8swatch.Key]Carried{}}
	b.options = Options{
		Namespace:    k8stest.ProxyNamespace,
		AllowedModes: []v1.UpstreamMode{v1.ModePassthrough, v1.ModeFrontProxy},
		Revalidate:   k8stest.RevalidatePrefixes,
		Now:          func() time.Time { return b.now },
	}
	for _, c := range change {
		c(&b.options)
	}
	b.Compiler = New(b.options)
	return b
}

// put stores an object as testKey.
func (b *bench) put(object *v1.ProxyKubeApi) {
	b.store.Objects[k8stest.Key] = &k8swatch.Object{ProxyKubeApi: object}
}

func (b *bench) compile() *k8swatch.Cluster {
	b.t.Helper()
	c := b.at(k8stest.Key)
	if c == nil {
		b.t.Fatal("Compile returned nil")
	}
	return c
}

// at compiles the object at key with what its last compilation left.
func (b *bench) at(key k8swatch.Key) *k8swatch.Cluster {
	c, carried := b.Compile(b.store, key, b.carried[key])
	b.carried[key] = carried
	return c
}

// forget has the next compilation begin anew.
func (b *bench) forget() { delete(b.carried, k8stest.Key) }

// affected are the objects that one change concerns.
func (b *bench) affected(change k8swatch.Change) []k8swatch.Key {
	return slices.Collect(maps.Keys(Affected(b.carried, []k8swatch.Change{change})))
}

func (b *bench) putSecret(s *corev1.Secret) {
	b.store.Secrets[k8swatch.Key{Namespace: s.Namespace, Name: s.Name}] = s
}

func (b *bench) removeSecret(namespace, name string) {
	delete(b.store.Secrets, k8swatch.Key{Namespace: namespace, Name: name})
}

func (b *bench) fail(read string, err error) { b.store.Failing[read] = err }

func (b *bench) heal(read string) { delete(b.store.Failing, read) }
