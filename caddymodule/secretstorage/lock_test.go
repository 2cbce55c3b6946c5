package secretstorage

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leases is an API with the conditions of a real one: a write with an old
// resourceVersion is a conflict.
type leases struct {
	mu      sync.Mutex
	objects map[string]*coordinationv1.Lease
	version int
	// before is called before each request; its error is the answer. after is
	// the same once the request was carried out: an answer that is lost.
	before, after func(verb string) error
}

func newLeases() *leases { return &leases{objects: map[string]*coordinationv1.Lease{}} }

var leaseResource = coordinationv1.Resource("leases")

func (l *leases) do(verb, name string, f func(old *coordinationv1.Lease) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.before != nil {
		if err := l.before(verb); err != nil {
			return nil, err
		}
	}
	lease, err := f(l.objects[name])
	if err == nil && l.after != nil {
		err = l.after(verb)
	}
	if err != nil {
		return &coordinationv1.Lease{}, err // as generated clients do
	}
	return lease.DeepCopy(), nil
}

func (l *leases) put(lease *coordinationv1.Lease) *coordinationv1.Lease {
	l.version++
	lease = lease.DeepCopy()
	lease.ResourceVersion = strconv.Itoa(l.version)
	if lease.UID == "" {
		lease.UID = types.UID("uid-" + lease.ResourceVersion)
	}
	l.objects[lease.Name] = lease
	return lease
}

func (l *leases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return l.do("get", name, func(old *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		if old == nil {
			return nil, apierrors.NewNotFound(leaseResource, name)
		}
		return old, nil
	})
}

func (l *leases) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.do("create", lease.Name, func(old *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		if old != nil {
			return nil, apierrors.NewAlreadyExists(leaseResource, lease.Name)
		}
		return l.put(lease), nil
	})
}

func (l *leases) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.do("update", lease.Name, func(old *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		switch {
		case old == nil:
			return nil, apierrors.NewNotFound(leaseResource, lease.Name)
		case old.ResourceVersion != lease.ResourceVersion:
			return nil, apierrors.NewConflict(leaseResource, lease.Name, errors.New("changed"))
		}
		return l.put(lease), nil
	})
}

func (l *leases) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	_, err := l.do("delete", name, func(old *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		switch {
		case old == nil:
			return nil, apierrors.NewNotFound(leaseResource, name)
		case old.ResourceVersion != *o.Preconditions.ResourceVersion || old.UID != *o.Preconditions.UID:
			return nil, apierrors.NewConflict(leaseResource, name, errors.New("changed"))
		}
		delete(l.objects, name)
		return old, nil
	})
	return err
}

// set changes the faults while requests run.
func (l *leases) set(before, after func(verb string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before, l.after = before, after
}

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.objects)
}

func (l *leases) locker(duration time.Duration) *locker {
	return newLocker(Options{LeaseDuration: duration, PollInterval: 5 * time.Millisecond}, func() (leaseClient, error) { return l, nil })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLockersExcludeEachOther(t *testing.T) {
	api := newLeases()
	var inside, times atomic.Int32
	var wg sync.WaitGroup
	for range 5 {
		l := api.locker(time.Minute)
		for range 10 {
			wg.Go(func() {
				if err := l.Lock(t.Context(), "one"); err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) > 1 {
					t.Error("two at once")
				}
				times.Add(1)
				inside.Add(-1)
				if err := l.Unlock(t.Context(), "one"); err != nil {
					t.Error(err)
				}
				if err := l.Unlock(t.Context(), "never locked"); !errors.Is(err, errNotLocked) {
					t.Error(err)
				}
			})
		}
		t.Cleanup(func() {
			if len(l.locks) > 0 || len(l.seen) > 0 {
				t.Errorf("it remembers %d locks and %d of others", len(l.locks), len(l.seen))
			}
		})
	}
	wg.Wait()
	if times.Load() != 50 || api.count() != 0 {
		t.Errorf("%d times, %d Leases are left", times.Load(), api.count())
	}
}

// Answers that are lost, and faults that pass, neither lose a lock nor hold
// it twice.
func TestLockOverFaults(t *testing.T) {
	lost := errors.New("connection reset")
	for _, verb := range []string{"get", "create", "delete"} {
		for name, fault := range map[string]error{
			"connection": lost, "busy": apierrors.NewTooManyRequestsError("busy"),
			"starting": apierrors.NewForbidden(leaseResource, "x", errors.New("no roles yet")),
		} {
			t.Run(verb+" "+name, func(t *testing.T) {
				api := newLeases()
				l := api.locker(time.Minute)
				left := 2
				failing := func(v string) error {
					if v == verb && left > 0 {
						left--
						return fault
					}
					return nil
				}
				if name == "connection" {
					api.set(nil, failing) // it was carried out
				} else {
					api.set(failing, nil)
				}
				must(t, l.Lock(t.Context(), "one"))
				if got, err := api.locker(time.Minute).TryLock(t.Context(), "one"); got || err != nil && verb != "get" {
					t.Errorf("the lock was not held: %t, %v", got, err)
				}
				must(t, l.Unlock(t.Context(), "one"))
				if api.count() != 0 {
					t.Error("the Lease is left")
				}
			})
		}
	}
}

// What was seen before an outage does not count towards the takeover: its
// holder could not renew either.
func TestOutageDoesNotExpireLocks(t *testing.T) {
	api := newLeases()
	waiting := api.locker(time.Second)
	lease := waiting.newLease("one", "holder")
	api.put(lease)
	if waiting.expired("one", api.objects[lease.Name]) {
		t.Fatal("expired at first sight")
	}
	seen := waiting.seen["one"]
	seen.since = seen.since.Add(-time.Hour)
	waiting.seen["one"] = seen
	api.set(func(string) error { return errors.New("connection refused") }, nil)
	if got, err := waiting.TryLock(t.Context(), "one"); got || err == nil {
		t.Fatalf("%t, %v", got, err)
	}
	api.set(nil, nil)
	if got, err := waiting.TryLock(t.Context(), "one"); got || err != nil {
		t.Fatalf("taken over after the outage: %t, %v", got, err)
	}
	seen = waiting.seen["one"]
	seen.since = seen.since.Add(-time.Hour)
	waiting.seen["one"] = seen
	if got, err := waiting.TryLock(t.Context(), "one"); !got || err != nil {
		t.Fatalf("not taken over: %t, %v", got, err)
	}
	must(t, waiting.Unlock(t.Context(), "one"))
}

// A renewal, whatever the clock in it says, keeps the lock with its holder.
func TestExpiryComparesNoClocks(t *testing.T) {
	l := newLeases().locker(time.Second)
	lease := l.newLease("one", "holder")
	old := metav1.NewMicroTime(time.Now().Add(-24 * time.Hour))
	for range 5 {
		old = metav1.NewMicroTime(old.Add(time.Second))
		lease.Spec.RenewTime = &old
		if l.expired("one", lease) {
			t.Fatal("a lock that is renewed expired, because its holder's clock is late")
		}
		seen := l.seen["one"]
		seen.since = seen.since.Add(-time.Hour)
		l.seen["one"] = seen
	}
	if !l.expired("one", lease) {
		t.Error("unchanged for an hour, and not expired")
	}
}

func TestLockGivesUp(t *testing.T) {
	api := newLeases()
	holder, other := api.locker(time.Minute), api.locker(time.Minute)
	must(t, holder.Lock(t.Context(), "one"))
	for _, l := range []*locker{holder, other} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := l.Lock(ctx, "one"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		cancel()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, holder.Unlock(ended, "one"))
	must(t, other.Lock(t.Context(), "one"))
	must(t, other.Unlock(t.Context(), "one"))
}
