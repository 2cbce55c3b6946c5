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
	"k8s.io/utils/ptr"
)

// sighting is a Lease of another holder as it was first seen.
type sighting struct {
	uid    types.UID
	holder string
	renew  time.Time
	// since is when that was, on the clock of this process.
	since time.Time
}

// try asks for the Lease of a lock once: it returns the Lease when it is ours,
// neither Lease nor error when another has it.
func (l *locker) try(ctx context.Context, name, id string) (*coordinationv1.Lease, error) {
	leases, err := l.connect()
	if err != nil {
		return nil, err
	}
	lease, err := leases.Get(ctx, leaseName(name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l.forget(name)
		lease, err = leases.Create(ctx, l.newLease(name, id), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil, nil
		}
		return orNil(lease, err)
	}
	if err != nil {
		// Its holder could not renew it either: what was seen before proves
		// nothing.
		l.forget(name)
		return nil, err
	}
	if lease.Annotations[lockAnnotation] != name {
		return nil, fmt.Errorf("the Lease %s %w", lease.Name, errForeign)
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == id {
		return lease, nil // the answer to an earlier try was lost
	}
	if holder != "" && !l.expired(name, lease) {
		return nil, nil
	}
	lease, err = leases.Update(ctx, l.taken(lease, id), metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, nil // another was faster
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

// expired says whether a Lease was seen unchanged for as long as it lasts. The
// times in it are compared with each other only, never with a clock here.
func (l *locker) expired(name string, lease *coordinationv1.Lease) bool {
	now := sighting{uid: lease.UID, holder: ptr.Deref(lease.Spec.HolderIdentity, ""), since: time.Now()}
	if lease.Spec.RenewTime != nil {
		now.renew = lease.Spec.RenewTime.Time
	}
	lasts := l.duration
	if seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, 0); seconds > 0 {
		lasts = time.Duration(seconds) * time.Second
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first, ok := l.seen[name]
	if !ok || first.uid != now.uid || first.holder != now.holder || !first.renew.Equal(now.renew) {
		if len(l.seen) >= maxSeen {
			clear(l.seen)
		}
		l.seen[name] = now
		return false
	}
	return now.since.Sub(first.since) > lasts
}

func (l *locker) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, name)
}

func (l *locker) newLease(name, id string) *coordinationv1.Lease {
	return l.taken(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name:        leaseName(name),
		Labels:      map[string]string{managedByLabel: ManagedBy},
		Annotations: map[string]string{lockAnnotation: name},
	}}, id)
}

// taken is a Lease with another holder.
func (l *locker) taken(lease *coordinationv1.Lease, id string) *coordinationv1.Lease {
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

// hold is a lock that this process holds.
type hold struct {
	*locker
	name, id string

	stop    context.CancelFunc
	stopped chan struct{}

	mu       sync.Mutex
	lease    *coordinationv1.Lease // the last version that was ours
	lost     bool
	released bool
}

// keep renews the Lease until ctx ends.
func (h *hold) keep(ctx context.Context) {
	defer close(h.stopped)
	const renewals, retries = 3, 15 // in the lease duration
	pause := h.duration / renewals
	for sleep(ctx, pause) {
		pause = h.duration / renewals
		request, cancel := context.WithTimeout(ctx, pause)
		err := h.renew(request, false)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, errLost):
			h.logger.Error("a lock was lost while it was held", zap.String("lock", h.name))
		default:
			h.logger.Warn("a lock could not be renewed", zap.String("lock", h.name), zap.Error(err))
			pause = h.duration / retries
		}
	}
}

// renew renews the Lease. One that was lost stays so, unless it is to be taken
// back and nobody has it. It returns errLost once, or each time with takeBack.
func (h *hold) renew(ctx context.Context, takeBack bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return errNotLocked
	}
	if h.lost {
		if !takeBack {
			return nil
		}
		lease, err := h.try(ctx, h.name, h.id)
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

// update writes the Lease's new time. When the Lease is not the one that was
// written last, it finds out whether it is still ours.
func (h *hold) update(ctx context.Context) error {
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
		// Somebody deleted it. Whoever comes now waits again.
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

// release ends the renewal and deletes the Lease, if it is still ours.
func (h *hold) release(ctx context.Context) error {
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

func (h *hold) delete(ctx context.Context) error {
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
		return nil // there is nothing of ours to release
	}
	if getErr != nil {
		return getErr
	}
	h.lease = lease
	return err
}
