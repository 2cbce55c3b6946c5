package hub

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// watcher lists and watches one kind of object and keeps a part of a Source
// up to date with it. It is the store that a reflector writes to: a change
// counts when it is read from the wire, with no queue between.
type watcher struct {
	k *Source
	// resource names what is watched, for the log.
	resource string
	listFor  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watchFor func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	expected runtime.Object
	// decode makes of an object what is kept of it. It may change the object.
	decode func(object any) (any, error)
	// put and drop change what is known; k.mu is held.
	put  func(key k8swatch.Key, value any)
	drop func(key k8swatch.Key)
	// synced is called after each full list; k.mu is held.
	synced func(first bool)

	// known are the objects of the last list and the events since. k.mu.
	known map[k8swatch.Key]bool
	full  bool
}

// The pauses between attempts at a hub that fails: half a second, growing to
// four, and up to a quarter more.
func hubBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Cap: 4 * time.Second, Steps: 8, Jitter: 0.25}
}

func (w *watcher) run(ctx context.Context) {
	w.known = map[k8swatch.Key]bool{}
	from := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := w.listFor(ctx, o)
			w.k.health.report(ctx, w.resource, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := w.watchFor(ctx, o)
			w.k.health.report(ctx, w.resource, err)
			return events, err
		},
	}
	cache.NewReflectorWithOptions(from, w.expected, w, cache.ReflectorOptions{
		Name:    w.resource,
		Logger:  &klog.Logger{},
		Backoff: hubBackoff(),
	}).RunWithContext(ctx)
}

// Add takes note of an object; see cache.ReflectorStore.
func (w *watcher) Add(object any) error {
	key, value, err := w.read(object)
	if err != nil {
		return err
	}
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	w.known[key] = true
	w.put(key, value)
	return nil
}

// Update takes note of a new version of an object.
func (w *watcher) Update(object any) error { return w.Add(object) }

// Delete takes note that an object is gone, or does not match any more.
func (w *watcher) Delete(object any) error {
	key, err := keyOf(object)
	if err != nil {
		return err
	}
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	delete(w.known, key)
	w.drop(key)
	return nil
}

// Replace takes a full list. Objects that it lacks were deleted between two
// watches.
func (w *watcher) Replace(list []any, _ string) error {
	values := make(map[k8swatch.Key]any, len(list))
	for _, object := range list {
		key, value, err := w.read(object)
		if err != nil {
			return err
		}
		values[key] = value
	}
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	for key := range w.known {
		if _, listed := values[key]; !listed {
			delete(w.known, key)
			w.drop(key)
		}
	}
	for key, value := range values {
		w.known[key] = true
		w.put(key, value)
	}
	w.synced(!w.full)
	w.full = true
	w.k.signal()
	return nil
}

// Resync does nothing: the store never forgets an object.
func (w *watcher) Resync() error { return nil }

func (w *watcher) read(object any) (k8swatch.Key, any, error) {
	key, err := keyOf(object)
	if err != nil {
		return key, nil, err
	}
	value, err := w.decode(object)
	return key, value, err
}

func keyOf(object any) (k8swatch.Key, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return k8swatch.Key{}, fmt.Errorf("reading the name of an object: %w", err)
	}
	return k8swatch.Key{Namespace: accessor.GetNamespace(), Name: accessor.GetName()}, nil
}

// watches are those that make the full list.
func (k *Source) watches() []*watcher {
	namespaces := k.options.WatchNamespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	all := []*watcher{k.watchLabelled()}
	for _, namespace := range namespaces {
		all = append(all, k.watchObjects(namespace), k.watchServices(namespace))
	}
	return all
}

// firstSync counts a watch whose first list is in memory.
func (k *Source) firstSync(first bool) {
	if first {
		k.unsynced--
	}
}

func (k *Source) watchObjects(namespace string) *watcher {
	client := k.objectAPI.Namespace(namespace)
	expected := &unstructured.Unstructured{}
	expected.SetGroupVersionKind(v1.SchemeGroupVersionKind)
	return &watcher{
		k: k, resource: inNamespace("proxykubeapis", namespace), expected: expected,
		listFor: listWith(func(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
			o.LabelSelector = k.options.ObjectSelector
			return client.List(ctx, o)
		}),
		watchFor: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = k.options.ObjectSelector
			return client.Watch(ctx, o)
		},
		decode: decodeAs(func(u *unstructured.Unstructured) any { return k.decodeObject(u) }),
		put:    func(key k8swatch.Key, value any) { k.putObject(key, value.(*k8swatch.Object)) },
		drop:   k.dropObject,
		synced: k.firstSync,
	}
}

func (k *Source) watchServices(namespace string) *watcher {
	client := k.core.Services(namespace)
	return &watcher{
		k: k, resource: inNamespace("services", namespace), expected: &corev1.Service{},
		listFor:  listWith(client.List),
		watchFor: client.Watch,
		decode:   decodeAs(func(s *corev1.Service) any { return trimService(s) }),
		put: func(key k8swatch.Key, value any) {
			service := value.(*corev1.Service)
			if last := k.services[key]; last != nil && last.UID == service.UID && apiequality.Semantic.DeepEqual(last.Spec, service.Spec) {
				return
			}
			k.services[key] = service
			k.note(k8swatch.KindService, key.Namespace, key.Name)
		},
		drop: func(key k8swatch.Key) {
			delete(k.services, key)
			k.note(k8swatch.KindService, key.Namespace, key.Name)
		},
		synced: k.firstSync,
	}
}

// listWith returns nil with an error: a nil *List would be a runtime.Object that
// is not nil.
func listWith[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

// decodeAs decodes objects of one type.
func decodeAs[T any](decode func(T) any) func(object any) (any, error) {
	return func(object any) (any, error) {
		typed, ok := object.(T)
		if !ok {
			return nil, fmt.Errorf("a %T is no %T", object, typed)
		}
		return decode(typed), nil
	}
}

// trimService keeps what a target is made of; the namespaces of others may
// hold thousands.
func trimService(s *corev1.Service) *corev1.Service {
	trimmed := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion},
		Spec:       corev1.ServiceSpec{Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP},
	}
	for _, p := range s.Spec.Ports {
		trimmed.Spec.Ports = append(trimmed.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	return trimmed
}

// watchLabelled watches the Secrets of the product.
func (k *Source) watchLabelled() *watcher {
	w := k.watchSecrets("labelled secrets", func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{k8swatch.ManagedByLabel: k8swatch.ManagedByValue}.String()
	})
	w.put = func(key k8swatch.Key, value any) { k.putLabelled(key.Name, value.(*corev1.Secret)) }
	w.drop = func(key k8swatch.Key) { k.putLabelled(key.Name, nil) }
	w.synced = func(first bool) {
		k.labelledSynced = true
		k.firstSync(first)
	}
	return w
}

// watchSecrets watches Secrets of the proxy's own namespace.
func (k *Source) watchSecrets(what string, choose func(*metav1.ListOptions)) *watcher {
	client := k.core.Secrets(k.options.Namespace)
	return &watcher{
		k: k, resource: inNamespace(what, k.options.Namespace), expected: &corev1.Secret{},
		listFor: listWith(func(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error) {
			choose(&o)
			return client.List(ctx, o)
		}),
		watchFor: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			choose(&o)
			return client.Watch(ctx, o)
		},
		decode: decodeAs(func(secret *corev1.Secret) any {
			trimMeta(secret)
			return secret
		}),
	}
}

func onlyName(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

// trimMeta drops metadata that the proxy does not read: the managed fields, and
// the copy of the object that kubectl apply leaves in an annotation. Of the managed
// fields it keeps who wrote the status last, and when (REC-8).
func trimMeta(object metav1.Object) {
	object.SetManagedFields(lastStatusWrite(object.GetManagedFields()))
	if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		object.SetAnnotations(annotations)
	}
}

// lastStatusWrite returns the youngest entry about the status, without the fields.
func lastStatusWrite(all []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var last []metav1.ManagedFieldsEntry
	for _, entry := range all {
		if entry.Subresource != "status" || entry.Time == nil || last != nil && !last[0].Time.Before(entry.Time) {
			continue
		}
		last = []metav1.ManagedFieldsEntry{{Manager: entry.Manager, Operation: entry.Operation, Subresource: entry.Subresource, Time: entry.Time}}
	}
	return last
}

func inNamespace(what, namespace string) string {
	if namespace == metav1.NamespaceAll {
		return what + " in all namespaces"
	}
	return what + " in namespace " + namespace
}
