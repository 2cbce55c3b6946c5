package k8swatch

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// hubObject is a ProxyKubeApi of the hub.
type hubObject struct {
	// latest is what was seen last, and shown what the Store answers: nil
	// until the references of the first version have been asked for.
	latest, shown *Object
	// needs are what latest refers to; held also what shown refers to.
	needs, held map[objectID]bool
	// waiting ends the wait for references, nil when there is none.
	waiting *time.Timer
}

// decodeObject reads one object. An object may be older than the CRD: one that
// does not fit the types is shown with the reason, and disturbs no other.
func (k *Kubernetes) decodeObject(u *unstructured.Unstructured) (object *Object) {
	trimMeta(u)
	id := &v1.ProxyKubeApi{}
	id.APIVersion, id.Kind = u.GetAPIVersion(), u.GetKind()
	id.Namespace, id.Name, id.UID = u.GetNamespace(), u.GetName(), u.GetUID()
	id.ResourceVersion, id.Generation = u.GetResourceVersion(), u.GetGeneration()
	id.DeletionTimestamp = u.GetDeletionTimestamp()
	defer func() {
		if recover() != nil {
			object = &Object{ProxyKubeApi: id, Invalid: "the object cannot be processed"}
		}
	}()
	readable, errs := k.validator.RecheckRaw(u.Object)
	if text, err := u.MarshalJSON(); err == nil && !lacksRequired(errs) {
		typed := &v1.ProxyKubeApi{}
		if kjson.UnmarshalCaseSensitivePreserveInts(text, typed) == nil {
			return &Object{ProxyKubeApi: typed}
		}
	}
	if readable.UID != id.UID || readable.Name != id.Name {
		readable.ObjectMeta = id.ObjectMeta
	}
	readable.TypeMeta = id.TypeMeta
	var texts []string
	for _, p := range fromFieldErrors(errs) {
		texts = append(texts, p.message())
	}
	if len(texts) == 0 {
		texts = []string{"the object does not have the shape of a " + v1.Kind}
	}
	return &Object{ProxyKubeApi: readable, Invalid: bounded(strings.Join(texts, "; "), maxMessage)}
}

// lacksRequired says whether a required field is missing, which the types do
// not tell from an empty one.
func lacksRequired(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Type == field.ErrorTypeRequired })
}

// putObject takes a version of an object. k.mu is held, as in all of these.
func (k *Kubernetes) putObject(key Key, latest *Object) {
	if latest.ProxyKubeApi.DeletionTimestamp != nil {
		// A finalizer, which its author may set, keeps the object, but not its URL.
		k.dropObject(key)
		return
	}
	o := k.objects[key]
	if o != nil && o.latest.ProxyKubeApi.UID != latest.ProxyKubeApi.UID {
		// Deleted and created again: nothing of the first is the second's.
		k.dropObject(key)
		o = nil
	}
	if o == nil {
		o = &hubObject{held: map[objectID]bool{}}
		k.objects[key] = o
	} else if o.latest.ProxyKubeApi.ResourceVersion == latest.ProxyKubeApi.ResourceVersion {
		return
	}
	o.latest, o.needs = latest, k.needs(key, &latest.ProxyKubeApi.Spec)
	for id := range o.needs {
		o.held[id] = true
		k.use(id, key)
	}
	k.showWhenAsked(key, o)
}

func (k *Kubernetes) dropObject(key Key) {
	o := k.objects[key]
	if o == nil {
		return
	}
	delete(k.objects, key)
	o.stopWaiting()
	for id := range o.held {
		k.release(id, key)
	}
	k.note(KindProxyKubeApi, key.Namespace, key.Name)
}

// showWhenAsked shows the latest version of an object, or makes it wait for
// references that were never asked for. A wait that has begun is not begun
// again by another version.
func (k *Kubernetes) showWhenAsked(key Key, o *hubObject) {
	switch {
	case !k.listed || o.shown == o.latest:
		return
	case !o.latest.ProxyKubeApi.Spec.EnabledOrDefault(), !k.unaskedAmong(o.needs):
		k.show(key, o)
	case o.waiting == nil:
		o.waiting = time.AfterFunc(showLimit, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.objects[key] == o && o.waiting != nil {
				k.show(key, o)
			}
		})
	}
}

func (k *Kubernetes) unaskedAmong(needs map[objectID]bool) bool {
	for id := range needs {
		if r := k.references[id]; r != nil && !r.asked && !k.isHint(id) {
			return true
		}
	}
	return false
}

func (k *Kubernetes) show(key Key, o *hubObject) {
	o.stopWaiting()
	if o.shown == o.latest {
		return
	}
	o.shown = o.latest
	for id := range o.held {
		if !o.needs[id] {
			delete(o.held, id)
			k.release(id, key)
		}
	}
	k.note(KindProxyKubeApi, key.Namespace, key.Name)
}

func (o *hubObject) stopWaiting() {
	if o.waiting != nil {
		o.waiting.Stop()
		o.waiting = nil
	}
}

// needs are what is read by name for an object: what it may refer to (API-4,
// API-5) and this version reads, a Service outside the namespaces that are watched, and the Secret of
// a front-proxy certificate, to see one that lacks its label.
func (k *Kubernetes) needs(key Key, spec *v1.ProxyKubeApiSpec) map[objectID]bool {
	needs := map[objectID]bool{}
	policy := referencePolicy{namespace: key.Namespace, opened: k.options.ReferenceNamespaces}
	eachReference(spec, func(path, kind, name string, namespace, refKey *string) {
		if !isRead(path, spec) {
			return
		}
		if r, problems := policy.resolve(path, kind, name, namespace, refKey); len(problems) == 0 {
			needs[objectID{r.kind, Key{Namespace: r.namespace, Name: r.name}}] = true
		}
	})
	if s := spec.Service.KubernetesService; s != nil {
		namespace := s.NamespaceOr(key.Namespace)
		named := len(validation.IsDNS1123Label(s.Name)) == 0 && len(validation.IsDNS1123Label(namespace)) == 0
		if named && !k.watchesNamespace(namespace) {
			needs[objectID{KindService, Key{Namespace: namespace, Name: s.Name}}] = true
		}
	}
	presents := spec.ModeOrDefault() == v1.ModeFrontProxy || spec.UserPrefixOrDefault() != "" || spec.GroupPrefixOrDefault() != ""
	if name := FrontProxySecret(key); presents && len(name) <= maxSecretName {
		needs[objectID{secretKind, Key{Namespace: k.options.Namespace, Name: name}}] = true
	}
	return needs
}

// isRead says whether a compilation reads the reference at path. What nothing is
// made of costs the hub no request.
func isRead(path string, spec *v1.ProxyKubeApiSpec) bool {
	return strings.HasPrefix(path, "spec.cert.") ||
		strings.HasPrefix(path, "spec.client_cert.") && spec.ModeOrDefault() == v1.ModePassthrough ||
		path == configFromPath && usesProvider(spec)
}

func (k *Kubernetes) watchesNamespace(namespace string) bool {
	return len(k.options.WatchNamespaces) == 0 || slices.Contains(k.options.WatchNamespaces, namespace)
}

// putLabelled takes a Secret of the product, nil when it is gone or lost its
// label. A copy that was read by name is dropped: it would outlive the Secret.
func (k *Kubernetes) putLabelled(name string, secret *corev1.Secret) {
	if secret == nil {
		delete(k.labelled, name)
	} else {
		if last := k.labelled[name]; last != nil && last.UID == secret.UID && last.ResourceVersion == secret.ResourceVersion {
			return
		}
		k.labelled[name] = secret
	}
	id := objectID{secretKind, Key{Namespace: k.options.Namespace, Name: name}}
	if r := k.references[id]; r != nil {
		r.value, r.err = nil, apierrors.NewNotFound(resourceOf(secretKind), name)
		k.refetch(id, r)
	}
	k.note(secretKind, k.options.Namespace, name)
}

// objectsOf returns the objects that use a reference.
func (k *Kubernetes) objectsOf(r *heldReference) []Key { return slices.Collect(maps.Keys(r.users)) }
