package keys

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// Refresh makes faults known without any token.
func TestRefresh(t *testing.T) {
	p, q := issuertest.New(t, k1().JWK()), issuertest.New(t)
	w := newWorld(t, p)
	var changes atomic.Int64
	w.registry.OnFaultChange = func(string) { changes.Add(1) }
	other := w.acquire(t, q.URL, "", q.CA())
	t.Cleanup(other.Close)
	refresh := func() { w.Refresh(); other.Refresh() }
	if w.Fault() != "" || other.Fault() != "" {
		t.Error("a fault before anything was asked")
	}
	refresh()
	refresh()
	issuertest.Eventually(t, "a fault is known", func() bool { return other.Fault() != "" && !w.isReading() })
	if want := "it publishes no key that can verify a signature"; other.Fault().Error() != want || w.Fault() != "" {
		t.Errorf("faults %q and %q, want %q", w.Fault(), other.Fault(), want)
	}
	p.Reads(t, 1)
	q.Reads(t, 1)
	q.Publish(k2().JWK())
	w.clock.Step(time.Minute)
	refresh()
	issuertest.Eventually(t, "the fault is gone", func() bool { return other.Fault() == "" })
	p.Reads(t, 1)
	issuertest.Eventually(t, "both changes are told", func() bool { return changes.Load() == 2 })
}

// The keys of one issuer are read once for all clusters, and forgotten with
// the last of them.
func TestKeySetsAreShared(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	other := w.acquire(t, p.URL, "", p.CA())
	third := w.acquire(t, p.URL, p.Server.URL+"/elsewhere", p.CA())
	token := w.token(t, k1(), p)
	w.check(t, token, nil)
	for _, h := range []*Handle{other, third} {
		if _, err := verify(t.Context(), h, token); err != nil {
			t.Error(err)
		}
	}
	p.Reads(t, 2)
	if n := len(w.registry.sets); n != 2 {
		t.Errorf("%d key sets, want 2", n)
	}
	third.Close()
	third.Close()
	other.Close()
	if n := len(w.registry.sets); n != 1 {
		t.Errorf("%d key sets, want 1", n)
	}
	// A request that is still under way when its configuration goes.
	if _, err := verify(t.Context(), other, token); err != nil {
		t.Error(err)
	}
	w.Close()
	if n := len(w.registry.sets); n != 0 {
		t.Errorf("%d key sets are left", n)
	}
}

// Giving a set back breaks off what is being read for it.
func TestCloseBreaksOff(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	entered := make(chan struct{})
	p.Answer(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}, nil)
	w.Refresh()
	<-entered
	start := time.Now()
	w.Close()
	if took := time.Since(start); took > idp.AnswerLimit/2 {
		t.Errorf("took %v", took)
	}
	if w.Handle.reading != nil {
		t.Error("still reading")
	}
}
