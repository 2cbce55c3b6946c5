package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// prefetchLimit bounds how long the first list waits for the references of
	// its objects.
	prefetchLimit = 10 * time.Second
	// showLimit bounds how long a new or changed object waits for its references.
	showLimit = 2 * time.Second
)

// Options say which hub is followed, and how.
type Options struct {
	// Config is how the hub is asked. Required.
	Config *rest.Config
	// Namespace is the proxy's own, where front-proxy certificates are.
	// Required.
	Namespace string
	// WatchNamespaces are where ProxyKubeApis and Services are watched; empty
	// is in all namespaces. A Service elsewhere is then read by name.
	WatchNamespaces []string
	// ObjectSelector is a label selector: ProxyKubeApis without these labels are
	// not there for this proxy (REC-8). Empty is all.
	ObjectSelector string
	// ReferenceNamespaces are the namespaces, besides its own, that an
	// object's references may point to (API-4). No other is ever asked.
	ReferenceNamespaces []string
	// ReferenceTTL is how old what was read by name may become before it is
	// read again. Default and maximum: 45 seconds, so that a right that was
	// taken away shows within a minute.
	ReferenceTTL time.Duration
	// Logger may be nil.
	Logger *zap.Logger
}

// Source follows the objects of a hub.
//
// It watches ProxyKubeApis and Services, and the labelled Secrets in the
// namespace of the proxy. Other Secrets and ConfigMaps that objects refer to are
// read by name, again and again, and never listed (the rights are those of
// section 16 of the reference).
//
// A new object, or a new version of an object, is shown once everything it refers
// to was read, so that no cluster is closed while a read is under way. It waits
// two seconds at most. A deletion and `enabled: false` do not wait.
//
// While the hub cannot be asked, everything stays as it was last seen. Only the
// reads by name fail; package compile then keeps the last good value.
//
// What it returns is shared and must not be changed.
type Source struct {
	options   Options
	validator *admission.Validator
	core      corev1client.CoreV1Interface
	objectAPI dynamic.NamespaceableResourceInterface
	health    *health
	// get reads a reference.
	get func(ctx context.Context, id objectID) (metav1.Object, error)
	// reads are the references to read, and retries the pauses after reads that
	// failed. Run makes the queue, which has goroutines of its own.
	reads   workqueue.TypedDelayingInterface[objectID]
	retries workqueue.TypedRateLimiter[objectID]
	// wake holds one token while there is something for Run to do.
	wake chan struct{}

	mu sync.RWMutex
	// running is nil before Run and ends with it.
	running  context.Context
	objects  map[k8swatch.Key]*object
	services map[k8swatch.Key]*corev1.Service
	// labelled are the Secrets of the product, by name.
	labelled map[string]*corev1.Secret
	followed map[string]*followedSecret
	// references are the objects that are read by name.
	references map[objectID]*namedObject
	// unsynced counts the watches without a first list, and unasked the
	// references that were never read and that an object waits for.
	unsynced, unasked int
	// labelledSynced says that the first list of labelled Secrets is in memory.
	labelledSynced bool
	// listed says that the first full list is in force.
	listed  bool
	pending map[k8swatch.Change]struct{}
}

var _ k8swatch.Source = (*Source)(nil)

// New returns the source of a hub. It asks nothing before Run.
func New(o Options) (*Source, error) {
	if o.Config == nil || o.Namespace == "" {
		return nil, errors.New("the source needs a configuration of the hub and the namespace of the proxy")
	}
	validator, err := admission.Default()
	if err != nil {
		return nil, fmt.Errorf("preparing admission: %w", err)
	}
	config := rest.CopyConfig(o.Config)
	// A warning is a text of the hub's admission, meant for people.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the hub: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the hub: %w", err)
	}
	k := newSource(o, validator)
	k.core, k.objectAPI = core, objects.Resource(v1.SchemeGroupVersionResource)
	k.get = k.readFromHub
	return k, nil
}

func newSource(o Options, validator *admission.Validator) *Source {
	o.WatchNamespaces = slices.Compact(slices.Sorted(slices.Values(o.WatchNamespaces)))
	if o.ReferenceTTL <= 0 {
		o.ReferenceTTL = maxReferenceTTL
	}
	o.ReferenceTTL = min(max(o.ReferenceTTL, minReferenceTTL), maxReferenceTTL)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &Source{
		options:    o,
		validator:  validator,
		health:     newHealth(o.Logger),
		retries:    workqueue.NewTypedItemExponentialFailureRateLimiter[objectID](firstRetry, lastRetry),
		wake:       make(chan struct{}, 1),
		objects:    map[k8swatch.Key]*object{},
		services:   map[k8swatch.Key]*corev1.Service{},
		labelled:   map[string]*corev1.Secret{},
		followed:   map[string]*followedSecret{},
		references: map[objectID]*namedObject{},
		pending:    map[k8swatch.Change]struct{}{},
	}
}

// Run follows the hub until ctx ends, and then returns nil: a hub that cannot
// be asked is waited for. It is called once. See Source.
//
// The watches may take a few seconds longer to end, which has no effect.
func (k *Source) Run(ctx context.Context, changed func(changes ...k8swatch.Change)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// What client-go has to say about its retries is said here, once.
	ctx = klog.NewContext(ctx, klog.Logger{})
	k.start(ctx)

	if !k.wait(ctx, nil, func() bool { return k.unsynced == 0 }) {
		return nil
	}
	limit := time.NewTimer(prefetchLimit)
	defer limit.Stop()
	if !k.wait(ctx, limit.C, func() bool { return k.unasked == 0 }) {
		return nil
	}
	k.showAll()
	changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
		if changes := k.takePending(); len(changes) > 0 {
			changed(changes...)
		}
	}
}

func (k *Source) start(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = ctx
	k.startReaders(ctx)
	for _, w := range k.watches() {
		k.unsynced++
		go w.run(ctx)
	}
	for name, f := range k.followed {
		go k.follow(name, f).run(ctx)
	}
}

// wait waits until something holds, or until limit, and says whether to go on.
func (k *Source) wait(ctx context.Context, limit <-chan time.Time, holds func() bool) bool {
	for {
		k.mu.RLock()
		ok := holds()
		k.mu.RUnlock()
		if ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-limit:
			return true
		case <-k.wake:
		}
	}
}

// showAll puts the first full list into force.
func (k *Source) showAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listed = true
	k.health.setListed()
	for key, o := range k.objects {
		k.show(key, o)
	}
	clear(k.pending)
}

// note adds a change to those that Run reports. k.mu is held.
func (k *Source) note(kind, namespace, name string) {
	if k.listed {
		k.pending[k8swatch.Change{Kind: kind, Namespace: namespace, Name: name}] = struct{}{}
	}
	k.signal()
}

func (k *Source) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *Source) takePending() []k8swatch.Change {
	k.mu.Lock()
	defer k.mu.Unlock()
	changes := slices.SortedFunc(maps.Keys(k.pending), func(a, b k8swatch.Change) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	clear(k.pending)
	return changes
}
