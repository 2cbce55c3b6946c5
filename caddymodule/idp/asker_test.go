package idp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/internal/tlstest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errRefused = errors.New("refused")

// world is an endpoint that answers 401 to tokens that begin with bad, and an
// Asker for it with a clock set by hand.
type world struct {
	*Asker
	clock  *clocktesting.FakeClock
	server *httptest.Server
	calls  atomic.Int64

	mu     sync.Mutex
	answer http.HandlerFunc // in place of the usual
}

func newClock() *clocktesting.FakeClock {
	return clocktesting.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
}

func newWorld(t *testing.T) *world { return newWorldOf(t, boundedjson.NewReader(1)) }

func newWorldOf(t *testing.T, answers *boundedjson.Reader) *world {
	w := &world{clock: newClock()}
	w.server = tlstest.Start(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.calls.Add(1)
		w.mu.Lock()
		answer := w.answer
		w.mu.Unlock()
		switch {
		case answer != nil:
			answer(rw, r)
		case strings.HasPrefix(r.Header.Get("Authorization"), "Bearer bad"):
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}))
	client, err := NewClient(tlstest.CA(w.server), answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	w.Asker = NewAsker(client, w.clock.Now, nil)
	// The clock stands still.
	w.limits.sleep = func(context.Context, time.Duration) bool { return true }
	return w
}

// atOnce are how many tokens are refused before a class needs its rate.
var atOnce = refusedBurst + int64(refusedRate*budgetWait.Seconds())

func (w *world) answers(h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = h
}

func (w *world) call(token string, verified bool) Call {
	return Call{
		Token:    token,
		Verified: verified,
		Request: func(ctx context.Context) (*http.Request, error) {
			r, err := NewGet(ctx, w.server.URL)
			if err == nil {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return r, err
		},
		Read: func(r *Response) error {
			switch r.Status {
			case http.StatusOK:
				return nil
			case http.StatusUnauthorized:
				return errRefused
			}
			return r.Unexpected()
		},
	}
}

func (w *world) ask(t *testing.T, token string, verified bool) error {
	t.Helper()
	return w.Ask(t.Context(), w.call(token, verified))
}

// AUTH-13: a flood of random tokens costs few calls and shuts out no
// known caller, nor one with a verified token.
func TestFlood(t *testing.T) {
	w := newWorld(t)
	if err := w.ask(t, "good", false); err != nil {
		t.Fatal(err)
	}
	var busy int
	for i := range 20_000 {
		switch err := w.ask(t, fmt.Sprint("bad", i), false); err {
		case errRefused:
		case tooManyRefused:
			busy++
		default:
			t.Fatal(err)
		}
	}
	calls := w.calls.Load() - 1
	t.Logf("20,000 random tokens: %d calls, %d not asked about", calls, busy)
	if calls != atOnce {
		t.Errorf("%d calls", calls)
	}
	if err := w.ask(t, "another", false); err != tooManyRefused {
		t.Errorf("a strange token in a flood: %v", err)
	}
	for range atOnce + 1 {
		if err := w.ask(t, "good", false); err != nil {
			t.Fatalf("a known token in a flood: %v", err)
		}
		if err := w.ask(t, "verified", true); err != nil {
			t.Fatalf("a verified token in a flood: %v", err)
		}
	}
	if f := w.Fault(); f != "" {
		t.Errorf("a flood is shown as the fault %q", f)
	}
	before := w.calls.Load()
	w.clock.Step(time.Second)
	for i := range 2 * refusedRate {
		_ = w.ask(t, fmt.Sprint("bad again", i), false)
	}
	if n := w.calls.Load() - before; n != refusedRate {
		t.Errorf("%d calls a second later", n)
	}
	w.clock.Step(time.Minute)
	if err := w.ask(t, "another", false); err != nil {
		t.Errorf("after the flood: %v", err)
	}
}

// Verified tokens that were revoked are bounded as well, apart.
func TestEndedTokens(t *testing.T) {
	w := newWorld(t)
	for i := range 2 * refusedBurst {
		_ = w.ask(t, fmt.Sprint("bad", i), true)
	}
	if n := w.calls.Load(); n != atOnce {
		t.Errorf("%d calls", n)
	}
	if err := w.ask(t, "another", false); err != nil {
		t.Errorf("a strange token beside them: %v", err)
	}
}

// Tokens that are accepted are never limited.
func TestGoodTokensAreNotLimited(t *testing.T) {
	w := newWorld(t)
	for i := range atOnce + 1 {
		if err := w.ask(t, fmt.Sprint("good", i), false); err != nil {
			t.Fatal(err)
		}
	}
}

// A token that was good is a stranger once it was refused.
func TestRefusedIsNotKnown(t *testing.T) {
	w := newWorld(t)
	if err := w.ask(t, "token", false); err != nil {
		t.Fatal(err)
	}
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusUnauthorized) })
	if err := w.ask(t, "token", false); err != errRefused {
		t.Fatal(err)
	}
	if n := w.limits.good.Len(); n != 0 {
		t.Errorf("%d tokens are known", n)
	}
}

// AUTH-13: a provider that fails is asked a few times a second, whatever the
// token, and recovers at once.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	const want Fault = "it answered with status 500"
	for i := range 1000 {
		if err := w.ask(t, fmt.Sprint("token", i), false); err != want {
			t.Fatal(err)
		}
	}
	if n := w.calls.Load(); n != faultBurst {
		t.Errorf("%d calls", n)
	}
	if f := w.Fault(); f != want {
		t.Errorf("fault %q", f)
	}
	// Those who are known do not suffer from what strangers provoke.
	w.answers(nil)
	if err := w.ask(t, "token", true); err != nil {
		t.Error(err)
	}
	if f := w.Fault(); f != "" {
		t.Errorf("fault %q after a success", f)
	}
	if err := w.ask(t, "token", false); err != want {
		t.Errorf("a moment later: %v", err)
	}
	w.clock.Step(faultPause)
	for i := range 1000 {
		if err := w.ask(t, fmt.Sprint("token", i), false); err != nil {
			t.Fatalf("after its return: %v", err)
		}
	}
	// A refusal is an answer, too.
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	_ = w.ask(t, "token", false)
	w.answers(nil)
	if err := w.ask(t, "bad", false); err != errRefused || w.Fault() != "" {
		t.Errorf("got %v, fault %q", err, w.Fault())
	}
	// A fault that did not come for long is not shown.
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	_ = w.ask(t, "token", false)
	w.clock.Step(FaultAge - time.Nanosecond)
	if w.Fault() == "" {
		t.Error("forgotten too early")
	}
	w.clock.Step(time.Nanosecond)
	if f := w.Fault(); f != "" {
		t.Errorf("fault %q after five minutes", f)
	}
}

// Calls at once, and what waits, are bounded; the other kind goes on.
func TestCallsAreBounded(t *testing.T) {
	w := newWorld(t)
	var now, most, arrived atomic.Int64
	release := make(chan struct{})
	w.answers(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Authorization"), "verified") {
			return
		}
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
	})
	const tokens = 200
	long := strings.Repeat("x", maxWaiting/tokens)
	results := make(chan error, tokens)
	for i := range tokens {
		go func() {
			arrived.Add(1)
			results <- w.Ask(context.Background(), w.call(fmt.Sprint(i)+long[:64<<10], false))
		}()
	}
	deadline := time.Now().Add(20 * time.Second)
	for w.calls.Load() < maxCalls || arrived.Load() < tokens {
		if time.Now().After(deadline) {
			t.Fatal("the calls did not begin")
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // until the last of them waits
	if err := w.ask(t, "verified", true); err != nil {
		t.Errorf("a verified token while strangers wait: %v", err)
	}
	big := strings.Repeat("y", maxWaiting-tokens*(64<<10))
	if err := w.ask(t, big, false); err != TooManyWait {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Ask(ctx, w.call("late", false)); err != outOfTime {
		t.Errorf("with no time left: %v", err)
	}
	close(release)
	for range tokens {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load(); n != maxCalls {
		t.Errorf("%d calls at once", n)
	}
	if c := &w.limits.strange; !c.calls.TryAcquire(maxCalls) || !c.waiting.TryAcquire(maxWaiting) {
		t.Error("calls or bytes are held")
	}
}

// TestConnections shows that connections are kept, and that one that went
// away does not fail the next form that is sent.
func TestConnections(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", h2), func(t *testing.T) {
			var opened atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				id, secret, _ := r.BasicAuth()
				_, _ = io.WriteString(w, strings.Join([]string{r.Method, r.Form.Get("token"), id, secret}, " "))
			}))
			server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					opened.Add(1)
				}
			}
			server.EnableHTTP2 = h2
			server.StartTLS()
			defer server.Close()
			client, err := NewClient(tlstest.CA(server), boundedjson.NewReader(1), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdleConnections()
			post := func() {
				t.Helper()
				request, err := NewPost(t.Context(), server.URL, url.Values{"token": {"a&b"}})
				if err != nil {
					t.Fatal(err)
				}
				SetClient(request, "me:you", "s%c")
				if err := client.Do(request, func(r *Response) error {
					if got := string(r.Body); got != "POST a&b me%3Ayou s%25c" {
						t.Errorf("got %q", got)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			for range 5 {
				post()
			}
			if n := opened.Load(); n != 1 {
				t.Errorf("%d connections", n)
			}
			for range 20 {
				server.CloseClientConnections()
				post()
			}
		})
	}
}
