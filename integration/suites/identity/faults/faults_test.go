package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// marker is in everything that a faulty provider writes.
const marker = "m4rk3d"

// fault is what happens to an endpoint.
type fault struct {
	name string
	// behaviour of the front, open by default, and answer of the endpoint.
	behaviour behaviour
	answer    *oidc.Fault
	// says is the words of the notice, one of them.
	says []string
	// only, if not empty, are the endpoints it applies to.
	only []oidc.Endpoint
}

// elsewhere is where redirects lead, filled in with the provider's address.
const elsewhere = "elsewhere:"

// text is an answer with the marker in each place that could be shown.
func text(status int, body string) *oidc.Fault {
	return &oidc.Fault{Status: status, Body: []byte(body), Location: "https://" + marker + ".example.test/"}
}

var (
	tooLate    = []string{"did not answer in time"}
	unreadable = []string{"cannot be read", "is not a JSON object"}
)

var faults = []fault{
	{name: "refused", behaviour: refusing, says: []string{"refused the connection"}},
	{name: "silent", behaviour: silent, says: tooLate},
	{name: "stranger", behaviour: strange, says: []string{"certificate is not trusted"}},
	{name: "aborts", answer: &oidc.Down, says: []string{"the connection failed"}},
	{name: "slow", answer: &oidc.Fault{Delay: answerLimit + 5*time.Second}, says: tooLate},
	{name: "mute", answer: &oidc.Fault{Delay: time.Hour}, says: tooLate},
	{name: "stalls", answer: &oidc.Fault{Status: http.StatusOK, Body: []byte(`{"` + marker), Stall: true}, says: tooLate},
	{name: "malformed", answer: text(http.StatusOK, `{"`+marker+`": `), says: unreadable},
	{name: "a-page", answer: &oidc.Fault{Status: http.StatusOK, Body: []byte("<html>" + marker + "</html>"), ContentType: "text/html"}, says: unreadable},
	{name: "oversized", answer: oversized(), says: []string{"over 1 MiB"}},
	{name: "redirect-302", answer: &oidc.Fault{Status: http.StatusFound, Location: elsewhere}, says: []string{"status 302"}},
	{name: "redirect-307", answer: &oidc.Fault{Status: http.StatusTemporaryRedirect, Location: elsewhere}, says: []string{"status 307"}},
	{name: "status-500", answer: text(http.StatusInternalServerError, `{"error":"server_error","error_description":"`+marker+`"}`), says: []string{"status 500"}},
	{name: "status-429", answer: text(http.StatusTooManyRequests, `{"error":"slow_down","error_description":"`+marker+`"}`), says: []string{"status 429"}},
	{name: "status-404", answer: text(http.StatusNotFound, marker), says: []string{"status 404"}},
	// Of introspection it is the proxy's own credential that is refused.
	{name: "status-401", answer: text(http.StatusUnauthorized, `{"error":"invalid_client","error_description":"`+marker+`"}`), says: []string{"status 401"}, only: []oidc.Endpoint{oidc.Keys, oidc.Introspection}},
	{name: "no-keys", answer: text(http.StatusOK, `{"keys":[],"`+marker+`":1}`), says: []string{"no key"}, only: []oidc.Endpoint{oidc.Keys}},
}

func oversized() *oidc.Fault {
	f := oidc.Oversized(1 << 20)
	return &f
}

// cell is one fault of one way, on a cluster of its own.
type cell struct {
	*site
	fault
	name string
	// late is a fault that comes when the cluster has served already.
	late bool
}

// longest is how long the cell takes, about.
func (c *cell) longest() time.Duration {
	switch {
	case c.late && c.local():
		return time.Minute
	case slices.Equal(c.says, tooLate):
		return answerLimit
	}
	return 0
}

func cells(t *testing.T) []*cell {
	var list []*cell
	for _, w := range ways {
		for _, f := range faults {
			if f.only == nil || slices.Contains(f.only, w.endpoint) {
				list = append(list, &cell{fault: f, name: w.name + "-" + f.name, site: &site{way: w}})
			}
			// For keys one is enough: it takes a minute to heal.
			if f.name == "refused" || f.name == "mute" && !w.local() {
				list = append(list, &cell{fault: f, name: w.name + "-late-" + f.name, site: &site{way: w}, late: true})
			}
		}
	}
	// Two at a time: making keys is work, and other tests run.
	slots := make(chan struct{}, 2)
	errs := each(list, func(c *cell) error {
		slots <- struct{}{}
		defer func() { <-slots }()
		s, err := newSite(c.way)
		if err == nil {
			c.site = s
			t.Cleanup(s.close)
			err = c.begin()
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return list
}

// each calls f for all at once.
func each[T any](list []T, f func(T) error) []error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i := range list {
		wg.Go(func() { errs[i] = f(list[i]) })
	}
	wg.Wait()
	return errs
}

// begin sets the state before the proxy starts.
func (c *cell) begin() error {
	if c.late {
		return c.front.set(open)
	}
	return c.breakIt()
}

func (c *cell) breakIt() error {
	if c.answer != nil {
		f := *c.answer
		if f.Location == elsewhere {
			f.Location = c.idp.ElsewhereURL()
		}
		c.idp.SetFault(c.endpoint, f)
	}
	return c.front.set(c.behaviour)
}

func (c *cell) repair() error {
	if c.answer != nil {
		c.idp.Repair(c.endpoint)
	}
	return c.front.set(open)
}

// AUTH-13: whatever is wrong with whatever a validator asks for, the caller gets
// a 503 in time and the notice says what it is; other clusters notice nothing;
// and it heals by itself.
func TestAUTH13Faults(t *testing.T) {
	t.Parallel()
	list := cells(t)
	near := newNeighbours(t)
	sites := map[string]*site{}
	for _, c := range list {
		sites[c.name] = c.site
	}
	for _, n := range near {
		sites[n.name] = n.site
	}
	// What is remembered outlives a fault, however slow the machine.
	w := newWorld(t, proxy.Options{Settings: "token_cache_ttl 5m"}, sites)
	quiet := w.measure(t, near, 3*time.Second)

	ctx, cancel := context.WithCancel(t.Context())
	busy := make(chan measures)
	go func() { busy <- w.measureUntil(t, ctx, near) }()
	// One after the other, for they should wait for providers and not for a busy
	// machine. Those that take longest begin.
	slices.SortStableFunc(list, func(a, b *cell) int { return cmp.Compare(b.longest(), a.longest()) })
	begin := make(chan struct{})
	go func() {
		for range list {
			begin <- struct{}{}
			time.Sleep(80 * time.Millisecond)
		}
	}()
	errs := each(list, func(c *cell) error { <-begin; return w.run(t.Context(), c) })
	cancel()
	during := <-busy
	during.hold(t, quiet)
	for i, c := range list {
		t.Run(c.name, func(t *testing.T) {
			if errs[i] != nil {
				t.Error(errs[i])
			}
		})
	}
	if strings.Contains(w.px.Everything(), marker) {
		t.Error("the log holds text of a provider")
	}
}

// run is the life of one cell.
func (w *world) run(ctx context.Context, c *cell) error {
	known := c.token(c.site)
	if c.late {
		if err := w.heals(ctx, c); err != nil {
			return fmt.Errorf("before the fault: %w", err)
		}
		if err := w.serves(ctx, c, known); err != nil {
			return fmt.Errorf("before the fault: %w", err)
		}
		if c.local() {
			// The keys at hand serve for minutes: a new one has to be asked for.
			if err := c.idp.AddKey("k2", jose.ES256); err != nil {
				return err
			}
			c.idp.UseKey("k2")
		}
		if err := c.breakIt(); err != nil {
			return err
		}
	}
	calls := c.idp.Calls(c.endpoint)
	errs := []error{w.fails(ctx, c)}
	if c.answer != nil && c.idp.Calls(c.endpoint) == calls {
		errs = append(errs, errors.New("the endpoint was not asked"))
	}
	if c.late {
		if err := w.serves(ctx, c, known); err != nil {
			errs = append(errs, fmt.Errorf("what was known before: %w", err))
		}
	}
	if c.idp.Calls(oidc.Elsewhere) > 0 {
		errs = append(errs, errors.New("a redirect was followed"))
	}
	if err := c.repair(); err != nil {
		return err
	}
	return errors.Join(append(errs, w.heals(ctx, c))...)
}

func (w *world) serves(ctx context.Context, c *cell, token string) error {
	a, err := w.ask(ctx, c.name, token)
	if err != nil {
		return err
	}
	return a.good(c.user)
}

// fails sends new tokens, each a 503, until the notice tells of the fault. It
// does at once, but the first answer of all may be late because the machine is
// busy, and the notice tells of that.
func (w *world) fails(ctx context.Context, c *cell) error {
	began := time.Now()
	for {
		a, err := w.ask(ctx, c.name, c.token(c.site))
		if err != nil {
			return err
		}
		if err := a.unavailable(); err != nil {
			return err
		}
		if strings.Contains(a.text(), marker) {
			return errors.New("the caller is shown text of the provider")
		}
		if err = w.noticed(ctx, c); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > soon {
			return err
		}
	}
}

// noticed waits for the notice, which names the provider and the fault, and
// says that the cluster is ready all the same (REC-6).
func (w *world) noticed(ctx context.Context, c *cell) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := w.wait(ctx, c.name, "the notice", func(s *proxy.ClusterStatus) bool {
		return slices.ContainsFunc(c.says, func(words string) bool { return strings.Contains(message(s), words) })
	})
	if err != nil {
		return fmt.Errorf("the notice says %q: %w", w.notice(c.name), err)
	}
	m := message(status)
	if !strings.Contains(m, c.idp.Issuer) && !strings.Contains(m, c.front.addr) {
		return fmt.Errorf("the notice does not name the provider: %s", m)
	}
	if strings.Contains(m, marker) {
		return fmt.Errorf("the notice holds text of the provider: %s", m)
	}
	if status.Ready() != "True/Serving" {
		return fmt.Errorf("with the notice the cluster is %s", status.Ready())
	}
	return nil
}

// heals waits until tokens are good again. What they get until then is a 503,
// for one minute at most: that long keys are not asked for again (AUTH-5).
func (w *world) heals(ctx context.Context, c *cell) error {
	began := time.Now()
	for {
		a, err := w.ask(ctx, c.name, c.token(c.site))
		if err != nil {
			return err
		}
		if a.Code == http.StatusCreated {
			break
		}
		if err := a.unavailable(); err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		if time.Since(began) > soon+30*time.Second {
			return fmt.Errorf("%v after the repair: %s", time.Since(began), a.text())
		}
		time.Sleep(250 * time.Millisecond)
	}
	if err := w.serves(ctx, c, c.token(c.site)); err != nil {
		return fmt.Errorf("after the repair: %w", err)
	}
	_, err := w.wait(ctx, c.name, "no notice any more", func(s *proxy.ClusterStatus) bool { return s.Condition(notice) == nil })
	return err
}
