package secretstorage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	defaultLeaseDuration = 15 * time.Second
	defaultPollInterval  = time.Second
	// lockPatience bounds how long the API may fail while a lock is waited
	// for.
	lockPatience = 2 * time.Minute
	// maxSeen bounds the locks of others that are remembered.
	maxSeen = 1024
)

var (
	errNotLocked = errors.New("this storage does not hold the lock")
	errLost      = errors.New("another process took the lock over")
)

// leaseClient is what is used of the API.
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
	seen  map[string]sighting
}

// localLock is a lock as this process sees it: one goroutine at a time has the
// turn and asks for the Lease, so that Unlock, which knows the name alone, never
// releases what another goroutine has acquired.
type localLock struct {
	turn  chan struct{}
	users int
	held  *hold
}

func newLocker(o Options, connect func() (leaseClient, error)) *locker {
	l := &locker{
		connect:  connect,
		logger:   o.Logger,
		duration: o.LeaseDuration,
		poll:     o.PollInterval,
		locks:    map[string]*localLock{},
		seen:     map[string]sighting{},
	}
	if l.logger == nil {
		l.logger = zap.NewNop()
	}
	if l.duration <= 0 {
		l.duration = defaultLeaseDuration
	}
	if l.poll <= 0 {
		l.poll = defaultPollInterval
	}
	// The host's name, a pod's name in Kubernetes, is for people.
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l.identity = host + "_" + rand.Text()
	return l
}

// Lock acquires a lock and renews it until Unlock. It waits until the lock is
// released, its holder has gone, or ctx ends.
func (l *locker) Lock(ctx context.Context, name string) error {
	local := l.join(name)
	select {
	case local.turn <- struct{}{}:
	case <-ctx.Done():
		l.leave(name, local)
		return fmt.Errorf("locking %q: %w", name, ctx.Err())
	}
	id := l.nextIdentity()
	lease, err := l.wait(ctx, name, id)
	if err != nil {
		<-local.turn
		l.leave(name, local)
		return fmt.Errorf("locking %q: %w", name, err)
	}
	l.hold(name, local, id, lease)
	return nil
}

// TryLock is Lock without waiting: it returns false when the lock is held.
func (l *locker) TryLock(ctx context.Context, name string) (bool, error) {
	local := l.join(name)
	select {
	case local.turn <- struct{}{}:
	default:
		l.leave(name, local)
		return false, nil
	}
	id := l.nextIdentity()
	lease, err := l.try(ctx, name, id)
	if lease == nil {
		<-local.turn
		l.leave(name, local)
		if err != nil {
			err = fmt.Errorf("locking %q: %w", name, err)
		}
		return false, err
	}
	l.hold(name, local, id, lease)
	return true, nil
}

// Unlock releases a lock, also when ctx has ended. When the API cannot be asked
// it gives an error, and others get the lock when its Lease has expired.
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
	<-local.turn
	l.leave(name, local)
	if err != nil {
		return fmt.Errorf("unlocking %q: %w", name, err)
	}
	return nil
}

// RenewLockLease renews a lock at once. An error says that the lock is not
// held any more, or that the API cannot be asked. A lock that was lost is taken
// back when nobody holds it. The duration has no effect: a lock is renewed until Unlock,
// however long that is, and does not outlive a process that was killed by
// more than the lease duration.
func (l *locker) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	l.mu.Lock()
	var held *hold
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

// wait tries until the lock is acquired.
func (l *locker) wait(ctx context.Context, name, id string) (*coordinationv1.Lease, error) {
	faults := bearing{limit: lockPatience}
	for {
		lease, err := l.try(ctx, name, id)
		switch {
		case lease != nil:
			return lease, nil
		case err == nil:
			faults = bearing{limit: lockPatience}
		default:
			if faults.since.IsZero() {
				l.logger.Warn("waiting for a lock: the API cannot be asked", zap.String("lock", name), zap.Error(err))
			}
			if !faults.bears(err, 0) {
				return nil, err
			}
		}
		if !sleep(ctx, wait.Jitter(l.poll/2, 1)) {
			return nil, ctx.Err()
		}
	}
}

func (l *locker) join(name string) *localLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	local := l.locks[name]
	if local == nil {
		local = &localLock{turn: make(chan struct{}, 1)}
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

func (l *locker) nextIdentity() string {
	return fmt.Sprintf("%s_%d", l.identity, l.count.Add(1))
}

// hold begins to renew a Lease.
func (l *locker) hold(name string, local *localLock, id string, lease *coordinationv1.Lease) {
	ctx, cancel := context.WithCancel(context.Background())
	held := &hold{locker: l, name: name, id: id, lease: lease, stop: cancel, stopped: make(chan struct{})}
	l.mu.Lock()
	local.held = held
	l.mu.Unlock()
	go held.keep(ctx)
}
