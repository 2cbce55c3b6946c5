package hub

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

// object is a ProxyKubeApi of the hub.
type object struct {
	// latest is the version seen last. shown is the version that the Store
	// answers, nil until the references of the first version were read.
	latest, shown *k8swatch.Object
	// needs are the references of latest, and used those of latest and shown.
	needs, used map[objectID]bool
	// waiting ends the wait for references, nil when there is none.
	waiting *time.Timer
}

// decodeObject reads one object. An object may be older than the CRD and not fit
// the types: it is then shown with the reason, and no other object is affected.
func (k *Source) decodeObject(u *unstructured.Unstructured) (object *k8swatch.Object) {
	trimMeta(u)
	id := &v1.ProxyKubeApi{}
	id.APIVersion, id.Kind = u.GetAPIVersion(), u.GetKind()
	id.Namespace, id.Name, id.UID = u.GetNamespace(), u.GetName(), u.GetUID()
	id.ResourceVersion, id.Generation = u.GetResourceVersion(), u.GetGeneration()
	id.DeletionTimestamp, id.ManagedFields = u.GetDeletionTimestamp(), u.GetManagedFields()
	defer func() {
		if recover() != nil {
			object = &k8swatch.Object{ProxyKubeApi: id, Invalid: "the object cannot be processed"}
		}
	}()
	readable, errs := k.validator.RevalidateRaw(u.Object)
	if text, err := u.MarshalJSON(); err == nil && !lacksRequired(errs) {
		typed := &v1.ProxyKubeApi{}
		if kjson.UnmarshalCaseSensitivePreserveInts(text, typed) == nil {
			return &k8swatch.Object{ProxyKubeApi: typed}
		}
	}
	if readable.UID != id.UID || readable.Name != id.Name {
		readable.ObjectMeta = id.ObjectMeta
	}
	readable.TypeMeta = id.TypeMeta
	var texts []string
	for _, fault := range admission.Faults(errs) {
		texts = append(texts, fault.String())
	}
	if len(texts) == 0 {
		texts = []string{"the object does not have the shape of a " + v1.Kind}
	}
	return &k8swatch.Object{ProxyKubeApi: readable, Invalid: text.OneLine(strings.Join(texts, "; "), k8swatch.MaxMessage)}
}

// lacksRequired says whether a required field is missing, which the types do
// not tell from an empty one.
func lacksRequired(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Type == field.ErrorTypeRequired })
}

// putObject notes a version of an object. k.mu is held, as in all methods of this
// file but decodeObject.
func (k *Source) putObject(key k8swatch.Key, latest *k8swatch.Object) {
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
		o = &object{used: map[objectID]bool{}}
		k.objects[key] = o
	} else if o.latest.ProxyKubeApi.ResourceVersion == latest.ProxyKubeApi.ResourceVersion {
		return
	}
	o.latest, o.needs = latest, k.needs(key, &latest.ProxyKubeApi.Spec)
	for id := range o.needs {
		o.used[id] = true
		k.use(id, key)
	}
	k.showWhenAsked(key, o)
}

func (k *Source) dropObject(key k8swatch.Key) {
	o := k.objects[key]
	if o == nil {
		return
	}
	delete(k.objects, key)
	o.stopWaiting()
	for id := range o.used {
		k.release(id, key)
	}
	k.note(k8swatch.KindProxyKubeApi, key.Namespace, key.Name)
}

// showWhenAsked shows the latest version of an object, or makes it wait for
// references that were never asked for. A wait that has begun is not begun
// again by another version.
func (k *Source) showWhenAsked(key k8swatch.Key, o *object) {
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

func (k *Source) unaskedAmong(needs map[objectID]bool) bool {
	for id := range needs {
		if r := k.references[id]; r != nil && !r.asked && !k.isHint(id) {
			return true
		}
	}
	return false
}

func (k *Source) show(key k8swatch.Key, o *object) {
	o.stopWaiting()
	if o.shown == o.latest {
		return
	}
	o.shown = o.latest
	for id := range o.used {
		if !o.needs[id] {
			delete(o.used, id)
			k.release(id, key)
		}
	}
	k.note(k8swatch.KindProxyKubeApi, key.Namespace, key.Name)
}

func (o *object) stopWaiting() {
	if o.waiting != nil {
		o.waiting.Stop()
		o.waiting = nil
	}
}

// needs are what is read by name for an object: what it may refer to (API-4,
// API-5) and this version reads, a Service outside the namespaces that are watched, and the Secret of
// a front-proxy certificate, to see one that lacks its label.
func (k *Source) needs(key k8swatch.Key, spec *v1.ProxyKubeApiSpec) map[objectID]bool {
	needs := map[objectID]bool{}
	policy := reference.Policy{Namespace: key.Namespace, Opened: k.options.ReferenceNamespaces}
	reference.Each(spec, func(path, kind, name string, namespace, refKey *string) {
		if !reference.IsRead(path, spec) {
			return
		}
		if r, problems := policy.Resolve(path, kind, name, namespace, refKey); len(problems) == 0 {
			needs[objectID{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}] = true
		}
	})
	if s := spec.Service.KubernetesService; s != nil {
		namespace := s.NamespaceOr(key.Namespace)
		named := len(validation.IsDNS1123Label(s.Name)) == 0 && len(validation.IsDNS1123Label(namespace)) == 0
		if named && !k.watchesNamespace(namespace) {
			needs[objectID{Kind: k8swatch.KindService, Namespace: namespace, Name: s.Name}] = true
		}
	}
	presents := spec.ModeOrDefault() == v1.ModeFrontProxy || spec.UserPrefixOrDefault() != "" || spec.GroupPrefixOrDefault() != ""
	if name := k8swatch.FrontProxySecret(key); presents && len(name) <= k8swatch.MaxSecretName {
		needs[objectID{Kind: k8swatch.KindSecret, Namespace: k.options.Namespace, Name: name}] = true
	}
	return needs
}

func (k *Source) watchesNamespace(namespace string) bool {
	return len(k.options.WatchNamespaces) == 0 || slices.Contains(k.options.WatchNamespaces, namespace)
}

// putLabelled takes a Secret of the product, nil when it is gone or lost its
// label. A copy that was read by name is dropped: it would outlive the Secret.
func (k *Source) putLabelled(name string, secret *corev1.Secret) {
	if secret == nil {
		delete(k.labelled, name)
	} else {
		if last := k.labelled[name]; last != nil && last.UID == secret.UID && last.ResourceVersion == secret.ResourceVersion {
			return
		}
		k.labelled[name] = secret
	}
	id := objectID{Kind: k8swatch.KindSecret, Namespace: k.options.Namespace, Name: name}
	if r := k.references[id]; r != nil {
		r.value, r.err = nil, apierrors.NewNotFound(resourceOf(k8swatch.KindSecret), name)
		k.reads.Add(id)
	}
	k.note(k8swatch.KindSecret, k.options.Namespace, name)
}
