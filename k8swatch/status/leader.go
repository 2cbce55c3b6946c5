package status

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/apifault"
)

// The times of the election. A candidate looks at the Lease every retryPeriod,
// which client-go makes up to 2.2 times as long (leaderelection.JitterFactor). It
// counts leaseDuration from when it saw the last renewal, so that a leader that
// dies is replaced within leaseDuration and two looks: 19.4 s.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = time.Second
)

// ElectorOptions say who takes part in which election.
type ElectorOptions struct {
	// Config is the hub, where the Lease is.
	Config *rest.Config
	// Namespace and Lease name the Lease.
	Namespace, Lease string
	// Identity names this process; no two may have the same.
	Identity string
	Logger   *zap.Logger
}

// Elector takes part in the election of the one replica that writes status and
// probes on schedule (REC-1). An election has no fencing: a leader that is cut
// off may write once more while another already leads. So the guarded work must be
// harmless when it is done twice.
type Elector struct {
	options ElectorOptions
	lock    *reportingLock
	leading atomic.Bool
}

// NewElector does no I/O.
func NewElector(o ElectorOptions) (*Elector, error) {
	// Its own client: writes of status must not keep a renewal waiting.
	config := rest.CopyConfig(o.Config)
	config.Timeout = renewDeadline / 2
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the leader election: %w", err)
	}
	lock := &reportingLock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Lease},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
		},
		logger: o.Logger.With(zap.String("lease", o.Namespace+"/"+o.Lease)),
	}
	lock.alive()
	return &Elector{options: o, lock: lock}, nil
}

// Leading says whether this process leads now.
func (e *Elector) Leading() bool { return e.leading.Load() }

// Renewed is the last time at which the election is known to have worked: this
// process wrote the Lease, or saw that another process holds the Lease and wrote
// it. At first it is when the Elector was made. An answer of the hub alone proves
// nothing: a hub that refuses every renewal answers too, and no replica leads. The
// time has a monotonic reading, so that its age is right when a clock is set.
func (e *Elector) Renewed() time.Time { return *e.lock.renewed.Load() }

// Run takes part until ctx ends, and then gives the Lease back. It calls
// changed, never twice at a time, when Leading changed. The last call, with false,
// returns before the Lease is given back: the work of the leader has ended before
// another replica takes it up.
func (e *Elector) Run(ctx context.Context, changed func()) error {
	// What client-go has to say of each attempt is said here, once.
	ctx = klog.NewContext(ctx, klog.Logger{})
	for ctx.Err() == nil {
		if err := e.term(ctx, changed); err != nil {
			return err
		}
	}
	return nil
}

// term is one candidacy, until the lease is lost or ctx ends.
func (e *Elector) term(ctx context.Context, changed func()) error {
	// The lease outlives ctx until the work has ended.
	candidacy, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	var (
		mu            sync.Mutex
		started, over bool
		ended         = make(chan struct{})
	)
	lead := func(lost context.Context) {
		mu.Lock()
		started = !over
		late := over
		mu.Unlock()
		if late {
			return // the candidacy ended before this goroutine ran
		}
		defer close(ended)
		defer resign()
		e.set(true, changed)
		select {
		case <-lost.Done():
		case <-ctx.Done():
		}
		e.set(false, changed)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            e.lock,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Name:            e.options.Lease,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return fmt.Errorf("preparing the leader election: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if !started {
			resign() // it only waits to be elected
		}
	})
	defer stop()
	elector.Run(candidacy)
	mu.Lock()
	over = true
	mu.Unlock()
	if started {
		<-ended
	}
	return nil
}

func (e *Elector) set(leading bool, changed func()) {
	e.leading.Store(leading)
	e.options.Logger.Info("leader election", zap.String("lease", e.options.Namespace+"/"+e.options.Lease), zap.Bool("leading", leading))
	changed()
}

// reportingLock logs that the proxy may not use the Lease. An absent hub is logged
// by the source of the objects.
type reportingLock struct {
	resourcelock.Interface
	logger  *zap.Logger
	renewed atomic.Pointer[time.Time]

	mu      sync.Mutex
	refused apifault.Refusal
	// seen is the Lease that was last read.
	seen []byte
}

// alive notes that a replica renews the Lease.
func (l *reportingLock) alive() {
	now := time.Now()
	l.renewed.Store(&now)
}

// Get reads the Lease.
func (l *reportingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if apierrors.IsNotFound(err) {
		return record, raw, err // it is to be created
	}
	if err == nil && l.moved(raw) && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() {
		l.alive()
	}
	return record, raw, l.report(ctx, err)
}

// moved says whether the Lease was written since it was last read, which the
// first read cannot tell.
func (l *reportingLock) moved(raw []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.seen
	l.seen = raw
	return before != nil && !bytes.Equal(before, raw)
}

// Create makes the Lease.
func (l *reportingLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.wrote(ctx, l.Interface.Create(ctx, record))
}

// Update renews or takes the Lease.
func (l *reportingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.wrote(ctx, l.Interface.Update(ctx, record))
}

// wrote takes the result of a write.
func (l *reportingLock) wrote(ctx context.Context, err error) error {
	if err == nil {
		l.alive()
	}
	return l.report(ctx, err)
}

// report takes the result of a request.
func (l *reportingLock) report(ctx context.Context, err error) error {
	fault, ok := apifault.Of(err)
	if ctx.Err() != nil || !ok || fault == apifault.Away {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case fault == apifault.None:
		if l.refused.Logged() {
			l.logger.Info("the Lease of the leader election can be used again")
		}
		l.refused = apifault.Refusal{}
	case l.refused.Due(time.Now()):
		l.logger.Error("the hub does not let the proxy use the Lease of the leader election: while no replica leads, no status is written and each probes for itself", apifault.Field(err))
	}
	return err
}
