package secretstorage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	defaultLeaseDuration = 15 * time.Second
	defaultPollInterval  = time.Second
	// lockPatience is how long the API may fail while Lock waits.
	lockPatience = 2 * time.Minute
)

var (
	errNotLocked = errors.New("this storage does not hold the lock")
	errLost      = errors.New("another process took the lock over")
)

// leaseClient is the part of the API client that locks use.
type leaseClient interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// locker implements certmagic's locks with Leases.
type locker struct {
	connect  func() (leaseClient, error)
	logger   *zap.Logger
	duration time.Duration
	poll     time.Duration

	// identity is unique to this locker, and count to each acquisition.
	identity string
	count    atomic.Uint64

	mu    sync.Mutex
	locks map[string]*localLock
	seen  map[string]observed
}

// localLock is a lock as this process sees it. One goroutine at a time has the
// turn and asks for the Lease, so that Unlock, which is given the name alone,
// never releases what another goroutine has acquired.
type localLock struct {
	turn  *semaphore.Weighted
	users int
	held  *heldLock
}

func newLocker(o Options, connect func() (leaseClient, error)) *locker {
	// The host's name, in Kubernetes that of the pod, is for people.
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &locker{
		connect:  connect,
		logger:   cmp.Or(o.Logger, zap.NewNop()),
		duration: cmp.Or(max(o.LeaseDuration, 0), defaultLeaseDuration),
		poll:     cmp.Or(max(o.PollInterval, 0), defaultPollInterval),
		identity: host + "_" + rand.Text(),
		locks:    map[string]*localLock{},
		seen:     map[string]observed{},
	}
}

// Lock acquires a lock and renews it until Unlock. It waits until the lock is
// released, its holder has gone, or ctx ends.
func (l *locker) Lock(ctx context.Context, name string) error {
	local := l.enter(name)
	err := local.turn.Acquire(ctx, 1)
	if err == nil {
		if _, err = l.acquire(ctx, name, local, l.waitForLease); err == nil {
			return nil
		}
		local.turn.Release(1)
	}
	l.leave(name, local)
	return fmt.Errorf("locking %q: %w", name, err)
}

// TryLock is Lock without waiting: it returns false when the lock is held.
func (l *locker) TryLock(ctx context.Context, name string) (bool, error) {
	local := l.enter(name)
	var err error
	if local.turn.TryAcquire(1) {
		var acquired bool
		if acquired, err = l.acquire(ctx, name, local, l.askForLease); acquired {
			return true, nil
		}
		local.turn.Release(1)
	}
	l.leave(name, local)
	if err != nil {
		err = fmt.Errorf("locking %q: %w", name, err)
	}
	return false, err
}

// acquire asks for the Lease, and begins to renew it.
func (l *locker) acquire(ctx context.Context, name string, local *localLock, ask func(ctx context.Context, name, id string) (*coordinationv1.Lease, error)) (bool, error) {
	id := fmt.Sprintf("%s_%d", l.identity, l.count.Add(1))
	lease, err := ask(ctx, name, id)
	if lease == nil {
		return false, err
	}
	renewing, stop := context.WithCancel(context.Background())
	held := &heldLock{locker: l, name: name, id: id, lease: lease, stop: stop, stopped: make(chan struct{})}
	l.mu.Lock()
	local.held = held
	l.mu.Unlock()
	go held.renewUntil(renewing)
	return true, nil
}

// waitForLease asks until this process has the Lease.
func (l *locker) waitForLease(ctx context.Context, name, id string) (lease *coordinationv1.Lease, err error) {
	faults := faultTimer{patience: lockPatience}
	backoff := wait.Backoff{Duration: l.poll / 2, Jitter: 1}
	err = backoff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		var err error
		if lease, err = l.askForLease(ctx, name, id); err == nil {
			faults = faultTimer{patience: lockPatience}
			return lease != nil, nil
		}
		if faults.failing.IsZero() {
			l.logger.Warn("waiting for a lock: the API cannot be asked", zap.String("lock", name), zap.Error(err))
		}
		if faults.giveUp(err) {
			return false, err
		}
		return false, nil
	})
	return lease, err
}

// Unlock releases a lock, also when ctx has ended. When the API cannot be asked,
// it returns an error, and others get the lock when its Lease has expired.
func (l *locker) Unlock(ctx context.Context, name string) error {
	l.mu.Lock()
	local := l.locks[name]
	if local == nil || local.held == nil {
		l.mu.Unlock()
		return fmt.Errorf("unlocking %q: %w", name, errNotLocked)
	}
	held := local.held
	local.held = nil
	l.mu.Unlock()

	err := held.release(context.WithoutCancel(ctx))
	local.turn.Release(1)
	l.leave(name, local)
	if err != nil {
		return fmt.Errorf("unlocking %q: %w", name, err)
	}
	return nil
}

// RenewLockLease renews a lock at once. An error says that the lock is no longer
// held, or that the API cannot be asked. A lock that was lost is taken back when
// it is free. The duration has no effect: a lock is renewed until Unlock, however
// long that takes, and outlives a process that was killed by the lease duration
// at most.
func (l *locker) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	l.mu.Lock()
	var held *heldLock
	if local := l.locks[name]; local != nil {
		held = local.held
	}
	l.mu.Unlock()
	err := errNotLocked
	if held != nil {
		err = held.renew(ctx, true)
	}
	if err != nil {
		return fmt.Errorf("renewing the lock %q: %w", name, err)
	}
	return nil
}

// enter and leave keep a localLock for as long as a goroutine uses it.
func (l *locker) enter(name string) *localLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	local := l.locks[name]
	if local == nil {
		local = &localLock{turn: semaphore.NewWeighted(1)}
		l.locks[name] = local
	}
	local.users++
	return local
}

func (l *locker) leave(name string, local *localLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if local.users--; local.users == 0 {
		delete(l.locks, name)
	}
}
