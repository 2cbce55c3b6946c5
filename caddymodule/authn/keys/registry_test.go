package keys

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
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

// AUTH-13: a large answer of an issuer counts for one of the objects that use it, as
// long as they do.
func TestOwnersOfAKeySet(t *testing.T) {
	r := NewRegistry(nil, boundedjson.NewReader(1), nil)
	t.Cleanup(r.Close)
	first, second := boundedjson.Owner{Namespace: "a", Name: "x"}, boundedjson.Owner{Namespace: "b", Name: "x"}
	acquire := func(o boundedjson.Owner) *Handle {
		h, err := r.Acquire(o, "https://idp.example.test", "", "")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	check := func(want ...boundedjson.Owner) {
		t.Helper()
		for _, s := range r.sets {
			got := r.owners(s)
			slices.SortFunc(got, func(a, b boundedjson.Owner) int { return strings.Compare(a.Namespace, b.Namespace) })
			if !slices.Equal(got, want) {
				t.Errorf("the owners are %v, want %v", got, want)
			}
		}
	}
	handles := []*Handle{acquire(first), acquire(first), acquire(second)}
	check(first, second)
	handles[0].Close()
	check(first, second)
	handles[1].Close()
	check(second)
	handles[2].Close()
	if r.Len() != 0 {
		t.Error("the key set is left")
	}
}
