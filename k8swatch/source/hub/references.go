package hub

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

const (
	// maxReferenceTTL keeps within a minute what is learnt by asking alone: a
	// right that was taken away, a Secret that was deleted.
	maxReferenceTTL = 45 * time.Second
	// minReferenceTTL bounds what one reference may cost the hub.
	minReferenceTTL = time.Second
	// firstRetry and lastRetry bound the pause after a read that gave nothing.
	firstRetry = 5 * time.Second
	lastRetry  = 30 * time.Second
	// jitter is the part of each pause that chance may take off.
	jitter = 0.2
)

// held is what is read by name, for as long as an object names it.
// Nothing of a read that failed is kept: a Compiler holds what was last good.
type held struct {
	users map[k8swatch.Key]bool
	// asked says that it was read once, well or not.
	asked bool
	value metav1.Object
	err   error
	// failures counts the reads in a row that gave nothing.
	failures int
	// timer starts the next read. While one runs, reading is true, and again
	// says that another must follow.
	timer          *time.Timer
	reading, again bool
}

// use makes an object name a reference. k.mu is held, as in all of these.
func (k *Source) use(id k8swatch.Change, key k8swatch.Key) {
	r := k.references[id]
	if r == nil {
		r = &held{users: map[k8swatch.Key]bool{}}
		k.references[id] = r
		if !k.isHint(id) {
			k.unasked++
		}
		k.schedule(id, r, 0)
	}
	r.users[key] = true
}

// release forgets a reference that no object names any more.
func (k *Source) release(id k8swatch.Change, key k8swatch.Key) {
	r := k.references[id]
	if r == nil {
		return
	}
	delete(r.users, key)
	if len(r.users) > 0 {
		return
	}
	r.timer.Stop()
	delete(k.references, id)
	k.countAsked(id, r)
}

func (k *Source) countAsked(id k8swatch.Change, r *held) {
	if !r.asked && !k.isHint(id) {
		k.unasked--
	}
	r.asked = true
}

// isHint says whether a reference is the Secret of a front-proxy certificate:
// the watch of the labelled ones alone says what is in force, and a read by
// name only helps to say what is wrong with it. Nothing waits for such a read.
func (k *Source) isHint(id k8swatch.Change) bool {
	return id.Kind == k8swatch.KindSecret && id.Namespace == k.options.Namespace && k8swatch.ProtectedSecretName(id.Name)
}

func (k *Source) schedule(id k8swatch.Change, r *held, pause time.Duration) {
	r.timer = time.AfterFunc(pause, func() { k.fetch(id, r) })
}

// refetch reads a reference anew, soon.
func (k *Source) refetch(id k8swatch.Change, r *held) {
	if r.reading {
		r.again = true
		return
	}
	r.timer.Stop()
	k.schedule(id, r, 0)
}

// fetch reads a reference and plans the next read.
func (k *Source) fetch(id k8swatch.Change, r *held) {
	k.mu.Lock()
	ctx := k.running
	if k.references[id] != r || ctx.Err() != nil || r.reading {
		k.mu.Unlock()
		return
	}
	r.reading, r.again = true, false
	labelled := k.isLabelled(id)
	k.mu.Unlock()

	var value metav1.Object
	err := error(apierrors.NewNotFound(resourceOf(id.Kind), id.Name))
	if !labelled {
		select {
		case k.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		readCtx, cancel := context.WithTimeout(ctx, readLimit)
		value, err = k.get(readCtx, id)
		cancel()
		<-k.slots
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if k.references[id] != r || ctx.Err() != nil {
		return
	}
	r.reading = false
	k.record(id, r, value, err)
	if r.again {
		k.schedule(id, r, 0)
		return
	}
	k.schedule(id, r, k.pause(id, r))
}

func (k *Source) isLabelled(id k8swatch.Change) bool {
	return id.Kind == k8swatch.KindSecret && id.Namespace == k.options.Namespace && k.labelled[id.Name] != nil
}

// record takes the result of a read.
func (k *Source) record(id k8swatch.Change, r *held, value metav1.Object, err error) {
	if err == nil && id.Kind == k8swatch.KindSecret && id.Namespace == k.options.Namespace && value.GetLabels()[k8swatch.ManagedByLabel] == k8swatch.ManagedByValue {
		// A Secret with the label comes from the watch, which also withdraws it at
		// once (CERT-5).
		value, err = nil, apierrors.NewNotFound(resourceOf(id.Kind), id.Name)
	}
	first, before := !r.asked, outcome(r.value, r.err)
	k.countAsked(id, r)
	r.value, r.err = value, err
	if err != nil {
		r.value = nil
		r.failures++
	} else {
		r.failures = 0
	}
	if first || outcome(r.value, r.err) != before {
		k.note(id.Kind, id.Namespace, id.Name)
	}
	if first {
		for _, key := range k.objectsOf(r) {
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
func (k *Source) pause(id k8swatch.Change, r *held) time.Duration {
	ttl := max(min(cmp.Or(max(k.options.ReferenceTTL, 0), maxReferenceTTL), maxReferenceTTL), minReferenceTTL)
	pause := ttl
	if r.err != nil && (!k.isHint(id) || !apierrors.IsNotFound(r.err)) {
		pause = firstRetry
		for i := 1; i < r.failures && pause < lastRetry; i++ {
			pause *= 2
		}
		pause = min(pause, lastRetry)
	}
	return time.Duration(float64(pause) * (1 - jitter*rand.Float64()))
}

// read asks the hub for a reference.
func (k *Source) read(ctx context.Context, id k8swatch.Change) (metav1.Object, error) {
	switch id.Kind {
	case k8swatch.KindSecret:
		secret, err := k.core.Secrets(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		trimMeta(secret)
		return secret, nil
	case k8swatch.KindConfigMap:
		configMap, err := k.core.ConfigMaps(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		trimMeta(configMap)
		return configMap, nil
	case k8swatch.KindService:
		service, err := k.core.Services(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return trimService(service), nil
	}
	return nil, fmt.Errorf("a %s is not read by name", id.Kind)
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
