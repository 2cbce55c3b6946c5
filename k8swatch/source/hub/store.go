package hub

import (
	"cmp"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

var (
	errHubNotListed = errors.New("the hub has not been read yet")
	errNotAsked     = errors.New("it has not been read yet")
)

// Keys lists the objects, sorted.
func (k *Source) Keys() []k8swatch.Key {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var keys []k8swatch.Key
	for key, o := range k.objects {
		if o.shown != nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b k8swatch.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

// Object returns an object, or nil. Its status is that of the version shown.
func (k *Source) Object(key k8swatch.Key) *k8swatch.Object {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if o := k.objects[key]; o != nil {
		return o.shown
	}
	return nil
}

// Latest returns an object as it was last seen, with its status, or nil. It may
// be ahead of Object, which waits for references. What does not fit the types
// is left out of it.
func (k *Source) Latest(key k8swatch.Key) *v1.ProxyKubeApi {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if o := k.objects[key]; o != nil {
		return o.latest.ProxyKubeApi
	}
	return nil
}

// Secret returns a Secret of the product or one that Follow named, as the watch
// has it, or else one that an object refers to, as it was last read.
func (k *Source) Secret(namespace, name string) (*corev1.Secret, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	id := objectID{Kind: k8swatch.KindSecret, Namespace: namespace, Name: name}
	if namespace == k.options.Namespace {
		if secret := k.labelled[name]; secret != nil {
			return secret, nil
		}
		if f := k.followed[name]; f != nil {
			return f.answer(name)
		}
		if !k.labelledSynced {
			return nil, errHubNotListed
		}
		if k.isHint(id) {
			return k.hint(id)
		}
	}
	return readByName[*corev1.Secret](k, id)
}

// hint answers for the Secret of a front-proxy certificate that the watch does not
// have: the Secret without the label that a read by name found, or not found.
func (k *Source) hint(id objectID) (*corev1.Secret, error) {
	if r := k.references[id]; r != nil {
		if secret, ok := r.value.(*corev1.Secret); ok {
			return secret, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceOf(k8swatch.KindSecret), id.Name)
}

// ConfigMap returns a ConfigMap that an object refers to, as it was last read.
func (k *Source) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return readByName[*corev1.ConfigMap](k, objectID{Kind: k8swatch.KindConfigMap, Namespace: namespace, Name: name})
}

// Service returns what a target needs of a Service: its type, cluster IP and
// ports.
func (k *Source) Service(namespace, name string) (*corev1.Service, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key := k8swatch.Key{Namespace: namespace, Name: name}
	switch {
	case !k.watchesNamespace(namespace):
		return readByName[*corev1.Service](k, objectID{Kind: k8swatch.KindService, Namespace: namespace, Name: name})
	case k.services[key] != nil:
		return k.services[key], nil
	case k.unsynced > 0:
		return nil, errHubNotListed
	}
	return nil, apierrors.NewNotFound(resourceOf(k8swatch.KindService), name)
}

// readByName answers from the references. k.mu is held.
func readByName[T metav1.Object](k *Source, id objectID) (T, error) {
	var none T
	r := k.references[id]
	switch {
	case r == nil || !r.asked:
		return none, errNotAsked
	case r.err != nil:
		return none, r.err
	}
	value, ok := r.value.(T)
	if !ok {
		return none, errNotAsked
	}
	return value, nil
}

// followedSecret is one Secret of the proxy's own namespace, whatever its label.
type followedSecret struct {
	value  *corev1.Secret
	synced bool
}

// answer returns the Secret. A Secret with the label of the product comes from the
// watch of labelled Secrets instead.
func (f *followedSecret) answer(name string) (*corev1.Secret, error) {
	switch {
	case f.value != nil && f.value.Labels[k8swatch.ManagedByLabel] != k8swatch.ManagedByValue:
		return f.value, nil
	case !f.synced:
		return nil, errHubNotListed
	}
	return nil, apierrors.NewNotFound(resourceOf(k8swatch.KindSecret), name)
}

// Follow watches one Secret of the proxy's own namespace by its name, from now
// on, or from when Run is called; Secret then answers from that watch. It may be
// called more than once and at any time. Each name costs a watch for good: it
// is for names that the proxy admin wrote, and never for an object's.
func (k *Source) Follow(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.followed[name] != nil {
		return
	}
	f := &followedSecret{}
	k.followed[name] = f
	if k.running != nil {
		go k.follow(name, f).run(k.running)
	}
}

func (k *Source) follow(name string, f *followedSecret) *watcher {
	w := k.watchSecrets("secret "+name, onlyName(name))
	w.put = func(key k8swatch.Key, value any) {
		secret := value.(*corev1.Secret)
		if f.value != nil && f.value.UID == secret.UID && f.value.ResourceVersion == secret.ResourceVersion {
			return
		}
		f.value = secret
		k.note(k8swatch.KindSecret, key.Namespace, key.Name)
	}
	w.drop = func(key k8swatch.Key) {
		f.value = nil
		k.note(k8swatch.KindSecret, key.Namespace, key.Name)
	}
	w.synced = func(bool) { f.synced = true }
	return w
}
