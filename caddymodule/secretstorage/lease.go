package secretstorage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// maxObservations bounds the Leases of other holders that are remembered.
const maxObservations = 1024

// observation is a state of the Lease of another holder.
type observation struct {
	uid    types.UID
	holder string
	renew  int64 // its renewTime, in Unix nanoseconds
}

// observed is when an observation was first made, on the clock of this process.
type observed struct {
	observation
	since time.Time
}

// askForLease asks for the Lease of a lock once. It returns the Lease when this
// acquisition has it, and neither Lease nor error when another one has it.
func (l *locker) askForLease(ctx context.Context, name, id string) (*coordinationv1.Lease, error) {
	leases, err := l.connect()
	if err != nil {
		return nil, err
	}
	lease, err := leases.Get(ctx, leaseName(name), metav1.GetOptions{})
	if err != nil {
		// During an outage the holder could not renew its Lease either: what
		// was seen before it proves nothing.
		l.forget(name)
	}
	if apierrors.IsNotFound(err) {
		lease, err = leases.Create(ctx, l.newLease(name, id), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil, nil
		}
		return orNil(lease, err)
	}
	if err != nil {
		return nil, err
	}
	if lease.Annotations[lockAnnotation] != name {
		return nil, fmt.Errorf("the Lease %s %w", lease.Name, errForeign)
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == id {
		return lease, nil // the answer to an earlier request was lost
	}
	if holder != "" && !l.expired(name, lease) {
		return nil, nil
	}
	lease, err = leases.Update(ctx, l.heldBy(lease, id), metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, nil // another process was faster
	}
	if err == nil && holder != "" {
		l.logger.Warn("took over a lock whose holder has gone", zap.String("lock", name), zap.String("holder", holder))
	}
	return orNil(lease, err)
}

// orNil drops the empty object that clients return beside an error.
func orNil(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// expired reports whether a Lease was seen unchanged for as long as it lasts. The
// times in it are compared with each other only, never with the clock here.
func (l *locker) expired(name string, lease *coordinationv1.Lease) bool {
	now := observation{uid: lease.UID, holder: ptr.Deref(lease.Spec.HolderIdentity, "")}
	if lease.Spec.RenewTime != nil {
		now.renew = lease.Spec.RenewTime.UnixNano()
	}
	lasts := l.duration
	if seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, 0); seconds > 0 {
		lasts = time.Duration(seconds) * time.Second
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, ok := l.seen[name]; ok && first.observation == now {
		return time.Since(first.since) > lasts
	}
	if len(l.seen) >= maxObservations {
		clear(l.seen)
	}
	l.seen[name] = observed{now, time.Now()}
	return false
}

func (l *locker) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, name)
}

func (l *locker) newLease(name, id string) *coordinationv1.Lease {
	return l.heldBy(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name:        leaseName(name),
		Labels:      map[string]string{managedByLabel: ManagedBy},
		Annotations: map[string]string{lockAnnotation: name},
	}}, id)
}

// heldBy returns a copy of a Lease with another holder.
func (l *locker) heldBy(lease *coordinationv1.Lease, id string) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	now := metav1.NowMicro()
	if lease.ResourceVersion != "" {
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity = &id
	lease.Spec.LeaseDurationSeconds = ptr.To(int32((l.duration + time.Second - 1) / time.Second))
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	return lease
}

// heldLock is a lock that this process holds.
type heldLock struct {
	*locker
	name, id string

	stop    context.CancelFunc
	stopped chan struct{}

	mu       sync.Mutex
	lease    *coordinationv1.Lease // as this process wrote it last
	lost     bool
	released bool
}

// renewUntil renews the Lease three times in its duration until ctx ends, and
// more often after a failure.
func (h *heldLock) renewUntil(ctx context.Context) {
	defer close(h.stopped)
	interval := h.duration / 3
	pause := interval
	_ = wait.DelayFunc(func() time.Duration { return pause }).Until(ctx, false, true, func(context.Context) (bool, error) {
		request, cancel := context.WithTimeout(ctx, interval)
		defer cancel()
		err := h.renew(request, false)
		pause = interval
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, errLost):
			h.logger.Error("a lock was lost while it was held", zap.String("lock", h.name))
		default:
			h.logger.Warn("a lock could not be renewed", zap.String("lock", h.name), zap.Error(err))
			pause = h.duration / 15
		}
		return false, nil
	})
}

// renew renews the Lease. A lock that was lost stays lost, unless takeBack is set
// and the lock is free. errLost is returned once, and with takeBack each time.
func (h *heldLock) renew(ctx context.Context, takeBack bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return errNotLocked
	}
	if h.lost {
		if !takeBack {
			return nil
		}
		lease, err := h.askForLease(ctx, h.name, h.id)
		if err == nil && lease == nil {
			err = errLost
		}
		if err != nil {
			return err
		}
		h.lease, h.lost = lease, false
		return nil
	}
	err := retry(ctx, h.duration, func() error { return h.update(ctx) })
	h.lost = errors.Is(err, errLost)
	return err
}

// update writes the new time. When the Lease is not as this process wrote it
// last, update finds out whether the lock is still held.
func (h *heldLock) update(ctx context.Context) error {
	leases, err := h.connect()
	if err != nil {
		return err
	}
	next := h.lease.DeepCopy()
	now := metav1.NowMicro()
	next.Spec.RenewTime = &now
	lease, err := leases.Update(ctx, next, metav1.UpdateOptions{})
	if err == nil {
		h.lease = lease
		return nil
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return err
	}
	if lease, err = leases.Get(ctx, next.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		// It was deleted. With a new Lease the others wait again.
		lease, err = leases.Create(ctx, h.newLease(h.name, h.id), metav1.CreateOptions{})
		if err == nil {
			h.logger.Warn("the Lease of a lock was gone while it was held", zap.String("lock", h.name))
			h.lease = lease
		}
		return err
	}
	if err != nil {
		return err
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != h.id {
		return errLost
	}
	h.lease = lease
	return apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("it was changed"))
}

// release ends the renewal and deletes the Lease, if the lock is still held.
func (h *heldLock) release(ctx context.Context) error {
	h.stop()
	<-h.stopped
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = true
	if h.lost {
		return nil
	}
	return retry(ctx, h.duration, func() error { return h.delete(ctx) })
}

func (h *heldLock) delete(ctx context.Context) error {
	leases, err := h.connect()
	if err != nil {
		return err
	}
	err = leases.Delete(ctx, h.lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: &h.lease.UID, ResourceVersion: &h.lease.ResourceVersion,
	}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if !apierrors.IsConflict(err) {
		return err
	}
	lease, getErr := leases.Get(ctx, h.lease.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(getErr) || getErr == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != h.id {
		return nil // another process has the lock by now
	}
	if getErr != nil {
		return getErr
	}
	h.lease = lease
	return err
}
