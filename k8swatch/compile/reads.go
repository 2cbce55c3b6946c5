package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// recorder is a Store that notes what was asked for, whatever the answer: an
// object depends on what is missing too.
type recorder struct {
	k8swatch.Store
	seen map[k8swatch.Change]struct{}
}

func (r *recorder) Object(key k8swatch.Key) *k8swatch.Object {
	r.seen[k8swatch.Change{Kind: k8swatch.KindProxyKubeApi, Namespace: key.Namespace, Name: key.Name}] = struct{}{}
	return r.Store.Object(key)
}

func (r *recorder) Secret(namespace, name string) (*corev1.Secret, error) {
	r.seen[k8swatch.Change{Kind: k8swatch.KindSecret, Namespace: namespace, Name: name}] = struct{}{}
	return r.Store.Secret(namespace, name)
}

func (r *recorder) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	r.seen[k8swatch.Change{Kind: k8swatch.KindConfigMap, Namespace: namespace, Name: name}] = struct{}{}
	return r.Store.ConfigMap(namespace, name)
}

func (r *recorder) Service(namespace, name string) (*corev1.Service, error) {
	r.seen[k8swatch.Change{Kind: k8swatch.KindService, Namespace: namespace, Name: name}] = struct{}{}
	return r.Store.Service(namespace, name)
}

// Affected lists the objects that must be compiled again after changes: the
// objects that changed, and those whose last compilation read what changed.
func Affected(compiled map[k8swatch.Key]Carried, changes []k8swatch.Change) map[k8swatch.Key]struct{} {
	affected := map[k8swatch.Key]struct{}{}
	changed := map[k8swatch.Change]bool{}
	for _, change := range changes {
		changed[change] = true
		if change.Kind == k8swatch.KindProxyKubeApi {
			affected[k8swatch.Key{Namespace: change.Namespace, Name: change.Name}] = struct{}{}
		}
	}
	for key, carried := range compiled {
		if slices.ContainsFunc(carried.reads, func(read k8swatch.Change) bool { return changed[read] }) {
			affected[key] = struct{}{}
		}
	}
	return affected
}
