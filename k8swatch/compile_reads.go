package k8swatch

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// recorder is a Store that notes what was asked for, whatever the answer: an
// object depends on what is missing too.
type recorder struct {
	Store
	seen map[Change]struct{}
}

func (r *recorder) Secret(namespace, name string) (*corev1.Secret, error) {
	r.seen[Change{KindSecret, namespace, name}] = struct{}{}
	return r.Store.Secret(namespace, name)
}

func (r *recorder) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	r.seen[Change{KindConfigMap, namespace, name}] = struct{}{}
	return r.Store.ConfigMap(namespace, name)
}

func (r *recorder) Service(namespace, name string) (*corev1.Service, error) {
	r.seen[Change{KindService, namespace, name}] = struct{}{}
	return r.Store.Service(namespace, name)
}

// Affected returns the objects that must be compiled again after a change: the
// object itself, or those whose last compilation read what changed.
func (c *Compiler) Affected(change Change) []Key {
	if change.Kind == KindProxyKubeApi {
		return []Key{{Namespace: change.Namespace, Name: change.Name}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.readers[change]))
}

// remember puts what a compilation read in place of what the one before read.
func (c *Compiler) remember(key Key, h *held, reads map[Change]struct{}) {
	for _, change := range h.reads {
		if _, still := reads[change]; !still {
			c.unread(change, key)
		}
	}
	h.reads = slices.Collect(maps.Keys(reads))
	for change := range reads {
		if c.readers[change] == nil {
			c.readers[change] = map[Key]struct{}{}
		}
		c.readers[change][key] = struct{}{}
	}
}

// forget drops what is held of an object.
func (c *Compiler) forget(key Key) {
	if h := c.held[key]; h != nil {
		for _, change := range h.reads {
			c.unread(change, key)
		}
	}
	delete(c.held, key)
}

func (c *Compiler) unread(change Change, key Key) {
	delete(c.readers[change], key)
	if len(c.readers[change]) == 0 {
		delete(c.readers, change)
	}
}
