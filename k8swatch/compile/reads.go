package compile

import (
	"maps"
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

// Affected returns the objects that must be compiled again after a change: the
// object itself, or those whose last compilation read what changed.
func (c *Compiler) Affected(change k8swatch.Change) []k8swatch.Key {
	if change.Kind == k8swatch.KindProxyKubeApi {
		return []k8swatch.Key{{Namespace: change.Namespace, Name: change.Name}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.readers[change]))
}

// remember puts what a compilation read in place of what the one before read.
func (c *Compiler) remember(key k8swatch.Key, h *held, reads map[k8swatch.Change]struct{}) {
	for _, change := range h.reads {
		if _, still := reads[change]; !still {
			c.unread(change, key)
		}
	}
	h.reads = slices.Collect(maps.Keys(reads))
	for change := range reads {
		if c.readers[change] == nil {
			c.readers[change] = map[k8swatch.Key]struct{}{}
		}
		c.readers[change][key] = struct{}{}
	}
}

// forget drops what is held of an object.
func (c *Compiler) forget(key k8swatch.Key) {
	if h := c.held[key]; h != nil {
		for _, change := range h.reads {
			c.unread(change, key)
		}
	}
	delete(c.held, key)
}

func (c *Compiler) unread(change k8swatch.Change, key k8swatch.Key) {
	delete(c.readers[change], key)
	if len(c.readers[change]) == 0 {
		delete(c.readers, change)
	}
}
