//go:build long

package replicas

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// The times of TestLongInformers.
const (
	informersRun     = 10 * time.Minute
	informersRotate  = 20 * time.Second
	informersReloads = 20
	// informersKills is how often the leader is killed, informersDown how long it
	// stays away.
	informersKills = 3
	informersDown  = 15 * time.Second
)

// STREAM-1, REC-2: shared informers on 20 resources run through two replicas while
// certificates are renewed, Caddy is reloaded and the leader is killed. They see
// every change that informers at the apiserver itself see, in the same order, and
// list nothing a second time.
func TestLongInformers(t *testing.T) {
	w := newWorld(t)
	ca, err := pki.NewCA("replicas")
	if err != nil {
		t.Fatal(err)
	}
	same := func(o *proxy.Options) { o.CA = ca }
	a, b := w.replica(t, "proxy-a", same), w.replica(t, "proxy-b", same)
	w.good(t, "prod", a, b)
	w.waitHolder(t, a, b)
	w.target.Kubectl(t, w.target.Kubeconfig).MustRun(t, "create", "clusterrolebinding", "alice", "--clusterrole=cluster-admin", "--user="+prefix+"alice")

	service := &balancer{up: []*replica{a, b}}
	calls := new(counter)
	direct := follow(t, w.target.AdminConfig())
	through := follow(t, service.config(w, ca, calls))
	lists := calls.lists.Load()
	if lists == 0 {
		t.Fatal("the first lists were not counted")
	}
	stopWriting := write(t, w.target.AdminConfig())

	e := &eventful{w: w, service: service, all: []*replica{a, b}}
	e.run(t)

	written := stopWriting()
	through.catchUp(direct)
	through.mustBeLike(t, direct)
	if n := calls.lists.Load() - lists; n > 0 {
		t.Errorf("%d lists after the first ones", n)
	}
	t.Logf("%d writes, %d events seen; %d lists and %d watches of %d resources; %d renewals, %d reloads, %d kills",
		written, through.total(), calls.lists.Load(), calls.watches.Load(), len(resources), e.renewals, e.reloads, e.kills)
	// A watch ends after five to ten minutes by itself, and with the replica that
	// has it.
	if most := int64(len(resources) * (3 + e.kills)); calls.watches.Load() > most {
		t.Errorf("more than %d watches", most)
	}
}

// eventful is what happens while the informers run.
type eventful struct {
	w       *world
	service *balancer
	all     []*replica

	renewals, reloads, kills int
	// dead is the replica that was killed, until back.
	dead *replica
	back time.Time
}

func (e *eventful) run(t *testing.T) {
	start := time.Now()
	for elapsed := time.Duration(0); elapsed < informersRun; elapsed = time.Since(start) {
		if due(elapsed, informersRotate, e.renewals) {
			e.renewals++
			e.w.Apply(t, proxy.FrontProxySecret(namespace, "prod", e.w.target.URL, pki.Must(e.w.target.FrontProxy())))
		}
		if due(elapsed, informersRun/(informersReloads+1), e.reloads) {
			e.reload(t)
		}
		if due(elapsed, informersRun/(informersKills+1), e.kills) && e.dead == nil {
			e.kill(t)
		}
		if e.dead != nil && time.Now().After(e.back) {
			e.restart(t)
		}
		time.Sleep(200 * time.Millisecond)
	}
	if e.dead != nil {
		e.restart(t)
	}
}

// due reports whether something that happens once in every period is to happen
// again, for which it has happened done times.
func due(elapsed, period time.Duration, done int) bool {
	return elapsed >= period*time.Duration(done+1)
}

// reload reloads the replicas by turns: with the same options, then with others.
func (e *eventful) reload(t *testing.T) {
	r := e.all[e.reloads%len(e.all)]
	if r == e.dead {
		r = e.all[(e.reloads+1)%len(e.all)]
	}
	e.reloads++
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	settings := fmt.Sprintf("probe_interval %ds", 5+e.reloads/3%2)
	if err := r.Reload(ctx, func(o *proxy.Options) { o.Settings = settings }); err != nil {
		t.Errorf("reload %d of %s: %v", e.reloads, r.pod, err)
	}
}

func (e *eventful) kill(t *testing.T) {
	e.kills++
	leader, _, _ := e.w.waitHolder(t, e.all...)
	e.service.remove(leader)
	leader.Kill()
	e.dead, e.back = leader, time.Now().Add(informersDown)
}

// restart starts the replica that was killed, and lets clients connect to it when
// it is ready, as a Service does.
func (e *eventful) restart(t *testing.T) {
	if err := e.dead.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.dead.MustServe(t, namespace, "prod")
	e.service.add(e.dead)
	e.dead = nil
}

// balancer connects to the replicas by turns, as a Service in front of them does.
type balancer struct {
	turn atomic.Int64
	mu   sync.Mutex
	up   []*replica
}

func (b *balancer) add(r *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up = append(b.up, r)
}

func (b *balancer) remove(r *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up = slices.DeleteFunc(b.up, func(other *replica) bool { return other == r })
}

func (b *balancer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.up) == 0 {
		return nil, errors.New("no replica is ready")
	}
	r := b.up[int(b.turn.Add(1))%len(b.up)]
	return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", r.Host)
}

// config is that of a client through the replicas.
func (b *balancer) config(w *world, ca *pki.CA, calls *counter) *rest.Config {
	return &rest.Config{
		Host: b.up[0].ClusterURL(namespace, "prod"), BearerToken: w.token, Dial: b.dial, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM},
		WrapTransport:   func(rt http.RoundTripper) http.RoundTripper { calls.RoundTripper = rt; return calls },
	}
}

// counter counts what informers send. A watch with initial events is a list, too.
type counter struct {
	http.RoundTripper
	lists, watches atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Get("watch") == "" || query.Get("sendInitialEvents") == "true" {
		c.lists.Add(1)
	}
	if query.Get("watch") != "" && !strings.Contains(r.URL.Path, "/openapi") {
		c.watches.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}
