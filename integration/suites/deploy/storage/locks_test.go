package storage

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
)

// holder says what a process of its own is to lock.
type holder struct {
	URL, Namespace, Lock, Locked string
	CA, Cert, Key                []byte
}

const holderVariable = "STORAGE_TEST_HOLDER"

// holdForEver is what this program does as the process of a holder: it acquires
// a lock, says so by making a file, and keeps it until it is killed.
func holdForEver() bool {
	text := os.Getenv(holderVariable)
	if text == "" {
		return false
	}
	var h holder
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		panic(err)
	}
	p := place{namespace: h.Namespace, config: clientConfig(h.URL, h.CA, h.Cert, h.Key)}
	if err := p.open().Lock(context.Background(), h.Lock); err != nil {
		panic(err)
	}
	if err := os.WriteFile(h.Locked, nil, 0o600); err != nil {
		panic(err)
	}
	select {}
}

// startHolder starts a process that holds a lock.
func startHolder(t *testing.T, p place, lock string) *process.Process {
	t.Helper()
	h := holder{
		URL: p.api.URL, Namespace: p.namespace, Lock: lock, Locked: filepath.Join(t.TempDir(), "locked"),
		CA: p.api.PKI.ServerCA.PEM, Cert: p.pair.CertPEM, Key: p.pair.KeyPEM,
	}
	text, err := json.Marshal(h)
	must(t, err)
	log := filepath.Join(t.TempDir(), "log")
	proc, err := process.Start(process.Options{Path: os.Args[0], Env: append(os.Environ(), holderVariable+"="+string(text)), LogFile: log})
	must(t, err)
	t.Cleanup(proc.Kill)
	for ctx := within(t); ; {
		if _, err := os.Stat(h.Locked); err == nil {
			return proc
		}
		select {
		case <-proc.Done():
			t.Fatalf("the holder ended: %s", proc.Log())
		case <-ctx.Done():
			t.Fatalf("the holder does not lock: %s", proc.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// CONF-4: the lock of a replica that was killed goes to another one when its
// lease has expired, and not before.
func TestTakeover(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	proc := startHolder(t, p, "issue")
	s := p.open()
	alive, cancel := context.WithTimeout(t.Context(), 3*leaseDuration)
	if err := s.Lock(alive, "issue"); err == nil {
		t.Fatal("the lock of a process that lives was taken over")
	}
	cancel()

	proc.Kill()
	<-proc.Done()
	killed := time.Now()
	must(t, s.Lock(within(t), "issue"))
	// The holder renews each third of the duration, so that the last renewal
	// may be that old.
	if waited := time.Since(killed); waited < leaseDuration*2/3-500*time.Millisecond {
		t.Errorf("taken over after %s: before the lease of %s expired", waited, leaseDuration)
	}
	must(t, s.Unlock(t.Context(), "issue"))
}

// A try sees what an earlier one saw, so that a dead holder does not keep a lock
// for ever from those who only try.
func TestTakeoverByTry(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	proc := startHolder(t, p, "ari")
	proc.Kill()
	<-proc.Done()
	s := p.open()
	ctx := within(t)
	if got, err := s.TryLock(ctx, "ari"); got || err != nil {
		t.Fatalf("the first look: %t, %v", got, err)
	}
	for {
		got, err := s.TryLock(ctx, "ari")
		must(t, err)
		if got {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	must(t, s.Unlock(ctx, "ari"))
}

// 50 goroutines of five replicas: never two at once, and each in the end.
func TestManyLockers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	var inside, times, together atomic.Int32
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 5 {
		s := p.open()
		for range 10 {
			wg.Go(func() {
				if err := s.Lock(ctx, "one"); err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) > 1 {
					together.Add(1)
				}
				times.Add(1)
				time.Sleep(5 * time.Millisecond)
				inside.Add(-1)
				if err := s.Unlock(ctx, "one"); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if together.Load() > 0 || times.Load() != 50 {
		t.Errorf("%d of 50 had the lock, %d while another had it", times.Load(), together.Load())
	}
	leases, err := coordinationclient.NewForConfig(p.api.AdminConfig())
	must(t, err)
	list, err := leases.Leases(p.namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(list.Items) != 0 {
		t.Errorf("%d Leases are left", len(list.Items))
	}
}

// A lock is renewed for as long as it is held, RenewLockLease says whether it
// still is, and a lock that another took is not released.
func TestLostLock(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	ctx := within(t)
	a, b := p.open(), p.open()
	mustFail(t, a.RenewLockLease(ctx, "issue", time.Minute), "does not hold the lock")
	must(t, a.Lock(ctx, "issue"))
	must(t, a.RenewLockLease(ctx, "issue", time.Minute))

	// An administrator deletes the Lease: the holder makes it again.
	client, err := coordinationclient.NewForConfig(p.api.AdminConfig())
	must(t, err)
	leases := client.Leases(p.namespace)
	must(t, leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	must(t, a.RenewLockLease(ctx, "issue", time.Minute))
	if got, err := b.TryLock(ctx, "issue"); got || err != nil {
		t.Fatalf("the lock was not held again: %t, %v", got, err)
	}

	// Another has it, as after a pause of this process.
	for {
		list, err := leases.List(ctx, metav1.ListOptions{})
		must(t, err)
		lease := &list.Items[0]
		other := "another"
		lease.Spec.HolderIdentity = &other
		if _, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
			break
		}
	}
	mustFail(t, a.RenewLockLease(ctx, "issue", time.Minute), "another process took the lock over")
	must(t, a.Unlock(ctx, "issue"))
	list, err := leases.List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(list.Items) != 1 || *list.Items[0].Spec.HolderIdentity != "another" {
		t.Errorf("the lock of another was touched: %+v", list.Items)
	}

	// No process renews that Lease.
	must(t, b.Lock(ctx, "issue"))
	must(t, b.Unlock(ctx, "issue"))
}

// An apiserver that restarts costs neither a value nor a lock.
func TestAPIServerRestart(t *testing.T) {
	t.Parallel()
	api := kube.Start(t, kube.Options{})
	p := newPlace(t, api)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	a, b := p.open(), p.open()
	must(t, a.Store(ctx, "before", []byte("1")))
	must(t, a.Lock(ctx, "issue"))
	waiting, acquired := context.WithCancel(ctx)
	second := make(chan error, 1)
	go func() { defer acquired(); second <- b.Lock(ctx, "issue") }()

	api.Suspend()
	start := time.Now()
	if _, err := a.Load(ctx, "before"); err == nil {
		t.Error("a value was loaded from nowhere")
	}
	if b.Exists(ctx, "before") {
		t.Error("a key exists although the API cannot be asked")
	}
	// The lease would have expired by now, if time alone counted.
	for time.Since(start) < leaseDuration+time.Second {
		time.Sleep(50 * time.Millisecond)
	}
	stored := make(chan error, 1)
	go func() { stored <- a.Store(ctx, "during", []byte("2")) }()
	must(t, api.Resume(ctx))
	if err := <-stored; err != nil {
		t.Errorf("a value that was stored during the restart: %v", err)
	}
	for _, key := range []string{"before", "during"} {
		if _, err := b.Load(ctx, key); err != nil {
			t.Errorf("after the restart: %v", err)
		}
	}
	// The holder lives: the lock stays with it.
	select {
	case <-waiting.Done():
		t.Fatal("the lock of a holder that lives was taken over after the restart")
	case <-time.After(2 * leaseDuration):
	}
	must(t, a.RenewLockLease(ctx, "issue", time.Minute))
	must(t, a.Unlock(ctx, "issue"))
	must(t, <-second)
	must(t, b.Unlock(ctx, "issue"))
}
