package status

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// reconcilers is how many objects are worked on at a time: enough for
	// writesPerSecond at a hub that takes a third of a second.
	reconcilers = 16
	// writesPerSecond and writesAtOnce bound the writes to the hub.
	writesPerSecond = 50
	writesAtOnce    = 100
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
	// An object whose write fails is tried again after retryFirst, and at
	// most after retryLast.
	retryFirst = 500 * time.Millisecond
	retryLast  = time.Minute
	// betweenWrites is the least time between two writes of one object, which
	// others than the proxy can provoke.
	betweenWrites = 500 * time.Millisecond
)

// Statuses is what a Reconciler asks the runtime.
type Statuses interface {
	// Leading says whether this process may write now.
	Leading() bool
	// Keys lists the objects.
	Keys() []k8swatch.Key
	// Latest is the object as the hub has it, as far as is known; nil when it
	// is gone.
	Latest(key k8swatch.Key) *v1.ProxyKubeApi
	// Status is what an object's status must be, given the one it has, or
	// nil when there is nothing to say yet; wait is then how long to wait, zero
	// for until the object is named again.
	Status(object *v1.ProxyKubeApi) (status *v1.ProxyKubeApiStatus, wait time.Duration)
}

// Reconciler writes the status of objects, and an Event for each condition
// that changed, while this process leads (REC-1, REC-4). It writes only what
// changed.
type Reconciler struct {
	statuses Statuses
	client   rest.Interface
	events   *eventWriter
	queue    workqueue.TypedRateLimitingInterface[k8swatch.Key]
	limit    *rate.Limiter
	logger   *zap.Logger

	mu      sync.Mutex
	written map[k8swatch.Key]written
}

// written is the last write of an object's status.
type written struct {
	at time.Time
	// over is the version of the object it was written over, and made the version
	// that the write made: while the source has an older one, status is what the
	// hub has.
	over, made string
	// status is what was written, and kept what the hub made of it: a hub whose
	// CRD is older drops fields.
	status, kept *v1.ProxyKubeApiStatus
	// overwrites bounds how often what others overwrite is put right, nil before
	// the first time. told is what was last told of them.
	overwrites *rate.Limiter
	told       string
}

// NewReconciler does no I/O.
func NewReconciler(config *rest.Config, statuses Statuses, logger *zap.Logger) (*Reconciler, error) {
	client, err := statusClient(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the status: %w", err)
	}
	events, err := newEventWriter(config, logger)
	if err != nil {
		return nil, fmt.Errorf("making a client for events: %w", err)
	}
	return &Reconciler{
		statuses: statuses,
		client:   client,
		events:   events,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[k8swatch.Key](retryFirst, retryLast)),
		limit:   rate.NewLimiter(writesPerSecond, writesAtOnce),
		logger:  logger,
		written: map[k8swatch.Key]written{},
	}, nil
}

func statusClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &v1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.QPS = -1 // limit bounds it
	return rest.RESTClientFor(c)
}

// Enqueue has the status of objects looked at soon.
func (r *Reconciler) Enqueue(keys ...k8swatch.Key) {
	for _, key := range keys {
		r.queue.Add(key)
	}
}

// EnqueueAll has all objects looked at, for a new leader.
func (r *Reconciler) EnqueueAll() { r.Enqueue(r.statuses.Keys()...) }

// Run works until ctx ends; what is under way is then finished or cut off.
func (r *Reconciler) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for range reconcilers {
		workers.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	workers.Wait()
}

func (r *Reconciler) next(ctx context.Context) bool {
	key, ended := r.queue.Get()
	if ended {
		return false
	}
	defer r.queue.Done(key)
	if !r.statuses.Leading() {
		r.queue.Forget(key)
		r.forget(key)
		return true // a new leader looks at all of them
	}
	wait, err := r.reconcile(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.logger.Warn("writing a status", zap.Stringer("cluster", key), zap.Error(err))
		r.queue.AddRateLimited(key)
	default:
		r.queue.Forget(key)
		if wait > 0 {
			r.queue.AddAfter(key, wait)
		}
	}
	return true
}

// reconcile writes what changed of one status. The wait is after how long to
// look again.
func (r *Reconciler) reconcile(ctx context.Context, key k8swatch.Key) (wait time.Duration, err error) {
	object := r.statuses.Latest(key)
	if object == nil {
		r.forget(key)
		return 0, nil
	}
	last := r.lastWrite(key)
	if last.unseen(object.ResourceVersion) {
		ahead := *object
		ahead.Status = last.kept
		object = &ahead
	}
	status, wait := r.statuses.Status(object)
	if status == nil || Same(status, object.Status) || Same(status, last.status) && Same(object.Status, last.kept) {
		return wait, nil
	}
	if another, rest := observer(object, status.ObservedBy, time.Now()); rest > 0 {
		r.leave(ctx, key, object, another, status.ObservedBy)
		return rest, nil
	}
	if early := betweenWrites - time.Since(last.at); early > 0 {
		return early, nil
	}
	overwritten := last.overwritten(object)
	if overwritten {
		if rest := r.mayOverwrite(ctx, key, object, &last); rest > 0 {
			return rest, nil
		}
	}
	if err := r.limit.Wait(ctx); err != nil {
		return 0, err
	}
	made, kept, err := r.write(ctx, object, status)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return 0, nil // gone; the source is about to say so
		}
		return 0, err
	}
	r.update(key, func(w *written) {
		w.at, w.over, w.made, w.status, w.kept, w.overwrites = time.Now(), object.ResourceVersion, made, status, kept, last.overwrites
		if !overwritten {
			w.told = ""
		}
	})
	r.events.changes(ctx, object, status)
	return wait, nil
}

// write replaces the status, whatever it is by now: two leaders that overlap
// do not wait for each other, and the later one is right. The uid keeps it
// from an object of the same name that came in between. It returns the version that
// the write made, and the status that the hub kept.
func (r *Reconciler) write(ctx context.Context, object *v1.ProxyKubeApi, status *v1.ProxyKubeApiStatus) (made string, kept *v1.ProxyKubeApiStatus, err error) {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": object.UID},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return "", nil, fmt.Errorf("encoding the status: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	result := r.client.Patch(types.JSONPatchType).Namespace(object.Namespace).Resource(v1.Resource).
		Name(object.Name).SubResource("status").Body(patch).Do(ctx)
	if err := result.Error(); err != nil {
		return "", nil, err
	}
	// The spec may not fit the type that it has here, and is not read.
	var now struct {
		Metadata metav1.ObjectMeta      `json:"metadata"`
		Status   *v1.ProxyKubeApiStatus `json:"status"`
	}
	if body, err := result.Raw(); err != nil || json.Unmarshal(body, &now) != nil || now.Status == nil {
		return "", status, nil // written all the same
	}
	return now.Metadata.ResourceVersion, now.Status, nil
}

func (r *Reconciler) lastWrite(key k8swatch.Key) written {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written[key]
}

func (r *Reconciler) update(key k8swatch.Key, change func(*written)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.written[key]
	change(&w)
	r.written[key] = w
}

func (r *Reconciler) forget(key k8swatch.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, key)
}
