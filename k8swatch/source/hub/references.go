package hub

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

const (
	// readers is how many references are read at once.
	readers = 16
	// readLimit bounds one read of a reference.
	readLimit = 10 * time.Second
	// maxReferenceTTL is how old the result of a read becomes at most. What the
	// proxy learns only by asking (a right that was taken away, a Secret that was
	// deleted) shows within a minute.
	maxReferenceTTL = 45 * time.Second
	// minReferenceTTL bounds what one reference costs the hub.
	minReferenceTTL = time.Second
	// A read that failed is repeated after firstRetry, which doubles up to
	// lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = 30 * time.Second
	// jitter is the part of each pause that chance may take off, so that the
	// references of all objects are not read at the same moment.
	jitter = 0.2
)

// objectID names an object of any kind.
type objectID = k8swatch.Change

// namedObject is a Secret, ConfigMap or Service that is read by name, for as
// long as a ProxyKubeApi refers to it. A read that fails leaves no value here:
// package compile keeps the last good one.
type namedObject struct {
	users map[k8swatch.Key]bool
	// asked says that it was read once, with or without success.
	asked bool
	value metav1.Object
	err   error
}

// startReaders starts the workers that read references until ctx ends. The queue
// never gives the same reference to two workers at a time.
func (k *Source) startReaders(ctx context.Context) {
	k.reads = workqueue.NewTypedDelayingQueue[objectID]()
	context.AfterFunc(ctx, k.reads.ShutDown)
	for range readers {
		go func() {
			for {
				id, ended := k.reads.Get()
				if ended {
					return
				}
				k.read(ctx, id)
				k.reads.Done(id)
			}
		}()
	}
}

// use notes that an object refers to id. k.mu is held, as in all methods of this
// file but read and get.
func (k *Source) use(id objectID, key k8swatch.Key) {
	r := k.references[id]
	if r == nil {
		r = &namedObject{users: map[k8swatch.Key]bool{}}
		k.references[id] = r
		if !k.isHint(id) {
			k.unasked++
		}
		k.reads.Add(id)
	}
	r.users[key] = true
}

// release forgets a reference that no object names any more.
func (k *Source) release(id objectID, key k8swatch.Key) {
	r := k.references[id]
	if r == nil {
		return
	}
	delete(r.users, key)
	if len(r.users) > 0 {
		return
	}
	delete(k.references, id)
	k.retries.Forget(id)
	k.countAsked(id, r)
}

func (k *Source) countAsked(id objectID, r *namedObject) {
	if !r.asked && !k.isHint(id) {
		k.unasked--
	}
	r.asked = true
}

// isHint says whether a reference is the Secret of a front-proxy certificate.
// The watch of the labelled Secrets alone decides what is in force. A read by
// name only helps to say what is wrong with a Secret that lacks the label, so
// that no object waits for it.
func (k *Source) isHint(id objectID) bool {
	return id.Kind == k8swatch.KindSecret && id.Namespace == k.options.Namespace && k8swatch.ProtectedSecretName(id.Name)
}

// read reads a reference and plans the next read.
func (k *Source) read(ctx context.Context, id objectID) {
	k.mu.RLock()
	r, labelled := k.references[id], k.isLabelled(id)
	k.mu.RUnlock()
	if r == nil || ctx.Err() != nil {
		return
	}
	var value metav1.Object
	err := error(apierrors.NewNotFound(resourceOf(id.Kind), id.Name))
	if !labelled {
		readCtx, cancel := context.WithTimeout(ctx, readLimit)
		value, err = k.get(readCtx, id)
		cancel()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.references[id] != r || ctx.Err() != nil {
		return
	}
	k.record(id, r, value, err)
	k.reads.AddAfter(id, k.pause(id, r))
}

func (k *Source) isLabelled(id objectID) bool {
	return id.Kind == k8swatch.KindSecret && id.Namespace == k.options.Namespace && k.labelled[id.Name] != nil
}

// record keeps the result of a read.
func (k *Source) record(id objectID, r *namedObject, value metav1.Object, err error) {
	if err == nil && id.Kind == k8swatch.KindSecret && id.Namespace == k.options.Namespace && value.GetLabels()[k8swatch.ManagedByLabel] == k8swatch.ManagedByValue {
		// The watch brings the Secrets that carry the label, and takes them away
		// at once (CERT-5).
		err = apierrors.NewNotFound(resourceOf(id.Kind), id.Name)
	}
	if err != nil {
		value = nil
	}
	first, before := !r.asked, outcome(r.value, r.err)
	k.countAsked(id, r)
	r.value, r.err = value, err
	if first || outcome(r.value, r.err) != before {
		k.note(id.Kind, id.Namespace, id.Name)
	}
	if first {
		for key := range r.users {
			k.showWhenAsked(key, k.objects[key])
		}
	}
}

// outcome tells the results of two reads apart.
func outcome(value metav1.Object, err error) string {
	if err != nil {
		return reference.Fault(err)
	}
	if value == nil {
		return ""
	}
	return "read " + string(value.GetUID()) + " " + value.GetResourceVersion()
}

// pause is how long the result of the last read counts.
func (k *Source) pause(id objectID, r *namedObject) time.Duration {
	var pause time.Duration
	if r.err == nil || k.isHint(id) && apierrors.IsNotFound(r.err) {
		k.retries.Forget(id)
		pause = k.options.ReferenceTTL
	} else {
		pause = k.retries.When(id)
	}
	return wait.Jitter(time.Duration(float64(pause)*(1-jitter)), jitter/(1-jitter))
}

// readFromHub asks the hub for a reference.
func (k *Source) readFromHub(ctx context.Context, id objectID) (metav1.Object, error) {
	switch id.Kind {
	case k8swatch.KindSecret:
		return trimmed(k.core.Secrets(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{}))
	case k8swatch.KindConfigMap:
		return trimmed(k.core.ConfigMaps(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{}))
	}
	service, err := k.core.Services(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return trimService(service), nil
}

// trimmed drops the object that clients return beside an error.
func trimmed[T metav1.Object](object T, err error) (metav1.Object, error) {
	if err != nil {
		return nil, err
	}
	trimMeta(object)
	return object, nil
}

func resourceOf(kind string) schema.GroupResource {
	switch kind {
	case k8swatch.KindSecret:
		return corev1.Resource("secrets")
	case k8swatch.KindConfigMap:
		return corev1.Resource("configmaps")
	default:
		return corev1.Resource("services")
	}
}
