package crowd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	users   = 50
	workers = 40
	prefix  = "proxyauth:"
	deskKey = "example.com/desk"
)

// person is a user with groups and an extra of their own, and a group that
// many share.
type person struct {
	name   string
	groups []string
	desk   string
	token  string
}

func people(idp *oidc.Provider) []person {
	list := make([]person, users)
	for i := range list {
		p := person{name: fmt.Sprintf("user-%02d", i), desk: fmt.Sprintf("desk %d", i)}
		for j := range i % 5 {
			p.groups = append(p.groups, fmt.Sprintf("group-%d-of-%02d", j, i))
		}
		p.groups = append(p.groups, "everybody")
		p.token = idp.Token(oidc.Alice, map[string]any{"preferred_username": p.name, "groups": p.groups, "desk": p.desk, "sub": p.name})
		list[i] = p
	}
	return list
}

func authenticator(idp *oidc.Provider) v1.JWTAuthenticator {
	a := proxy.Authenticator(idp)
	a.ClaimMappings.Extra = []v1.ExtraMapping{{Key: deskKey, ValueExpression: "claims.desk"}}
	return a
}

func (p *person) is(user string, groups []string, extra []string) bool {
	return user == prefix+p.name && slices.Equal(extra, []string{p.desk}) &&
		slices.EqualFunc(groups, p.groups, func(got, want string) bool { return got == prefix+want })
}

// load is requests of all users, in any order, over connections they share:
// some of HTTP/2, some of HTTP/1.1.
type load struct {
	px      *proxy.Proxy
	people  []person
	clients []*http.Client
	// one sends one request of a user and checks its answer.
	one func(ctx context.Context, client *http.Client, p *person, n int64) error

	answered, cancelled atomic.Int64
}

func newLoad(t *testing.T, px *proxy.Proxy, list []person) *load {
	l := &load{px: px, people: list}
	for _, protocol := range []string{"h2", "h2", "h1"} {
		client := px.Client(protocol)
		client.Transport.(*http.Transport).MaxIdleConnsPerHost = workers
		t.Cleanup(client.CloseIdleConnections)
		l.clients = append(l.clients, client)
	}
	return l
}

// run sends until total requests were answered. One in two hundred is given up
// on its way, which leaves a connection in the middle of something.
func (l *load) run(t *testing.T, total int64) {
	t.Helper()
	var sent atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for !t.Failed() && l.answered.Load() < total {
				n := sent.Add(1)
				p := &l.people[rand.IntN(len(l.people))]
				client := l.clients[rand.IntN(len(l.clients))]
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				impatient := n%200 == 0
				if impatient {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(2000))*time.Microsecond)
				}
				err := l.one(ctx, client, p, n)
				cancel()
				switch {
				case err == nil:
					l.answered.Add(1)
				case impatient && errors.Is(err, context.DeadlineExceeded):
					l.cancelled.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func send(ctx context.Context, client *http.Client, method, url, token, body string) (int, []byte, error) {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return 0, nil, err
	}
	req.Header = kube.Bearer(token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// ID-3, ID-7: 30,000 requests of 50 users over shared connections are each
// answered with their own identity.
func TestID3EachRequestHasItsOwnIdentity(t *testing.T) { ownIdentity(t, 30_000) }

func ownIdentity(t *testing.T, total int64) {
	idp := oidc.Start(t, oidc.Options{})
	up := newUpstream(t)
	px := proxy.Start(t, proxy.Options{
		LogLevel: "WARN", // so many audit lines are another test's
		Manifests: map[string]string{"prod.yaml": proxy.Manifests(
			proxy.FrontProxyCluster("team-a", "prod", up.URL, up.serverCA, prefix, authenticator(idp)),
			proxy.FrontProxySecret("team-a", "prod", up.URL, pki.Must(up.frontProxyCA.Client(kube.FrontProxyName))),
		)},
	})
	px.MustServe(t, "team-a", "prod")
	l := newLoad(t, px, people(idp))
	l.one = func(ctx context.Context, client *http.Client, p *person, n int64) error {
		target, method, body := fmt.Sprintf("/api/v1/namespaces/%s/configmaps/%d", p.name, n), http.MethodGet, ""
		if n%10 == 0 {
			method, body = http.MethodPut, strings.Repeat("x", int(n%5000))
		}
		code, answer, err := send(ctx, client, method, px.ClusterURL("team-a", "prod")+target, p.token, body)
		if err != nil {
			return err
		}
		var s seen
		if err := json.Unmarshal(answer, &s); err != nil || code != http.StatusOK {
			return fmt.Errorf("request %d of %s: %d %s", n, p.name, code, answer)
		}
		if s.Target != target || !p.is(s.User, s.Groups, s.Extra[deskKey]) || len(s.Extra) != 1 {
			return fmt.Errorf("request %d of %s for %s was seen as %+v", n, p.name, target, s)
		}
		return nil
	}
	began := time.Now()
	l.run(t, total)
	took := time.Since(began)
	t.Logf("%d answers, each its own, and %d requests given up, in %v: %.0f a second", l.answered.Load(), l.cancelled.Load(), took.Round(time.Millisecond), float64(l.answered.Load())/took.Seconds())
	if l.answered.Load() < total || up.requests.Load() < total {
		t.Errorf("%d answers, %d requests at the upstream, want %d", l.answered.Load(), up.requests.Load(), total)
	}
}

// ID-3 with a real apiserver: 5,000 reviews, and as many events under the right
// names in its audit log and in the proxy's. RELAY-5: its GOAWAY loses none of them.
func (a *apiserver) eachHasItsOwn(t *testing.T) {
	const total = 5_000
	px := a.px
	l := newLoad(t, px, a.people)
	var mu sync.Mutex
	counts := map[string]int{}
	l.one = func(ctx context.Context, client *http.Client, p *person, n int64) error {
		header := kube.Bearer(p.token)
		header.Set("User-Agent", "crowd/"+p.name)
		r, err := kube.WhoAmI(ctx, client, px.ClusterURL("team-a", "prod"), header)
		if err != nil {
			return err
		}
		groups := slices.DeleteFunc(slices.Clone(r.User.Groups), func(g string) bool { return g == "system:authenticated" })
		if r.Code != http.StatusCreated || !p.is(r.User.Username, groups, r.User.Extra[deskKey]) || len(r.User.Extra) != 1 {
			return fmt.Errorf("request %d of %s was seen as %+v", n, p.name, r)
		}
		mu.Lock()
		defer mu.Unlock()
		counts[p.name]++
		return nil
	}
	began := time.Now()
	l.run(t, total)
	took := time.Since(began)
	t.Logf("%d answers, each its own, and %d requests given up, in %v: %.0f a second", l.answered.Load(), l.cancelled.Load(), took.Round(time.Millisecond), float64(l.answered.Load())/took.Seconds())
	checkAudit(t, a.APIServer, counts)
	checkProxyAudit(t, px, counts)
}

// checkAudit wants every event of the crowd under the name its user agent says,
// and at least as many as there were answers: the rest were given up.
func checkAudit(t *testing.T, api *kube.APIServer, counts map[string]int) {
	t.Helper()
	var events []auditv1.Event
	got := map[string]int{}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var err error
		if events, err = api.AuditEvents(); err != nil {
			t.Fatal(err)
		}
		clear(got)
		for _, e := range events {
			if name, ok := strings.CutPrefix(e.UserAgent, "crowd/"); ok {
				got[name]++
				if e.User.Username != prefix+name {
					t.Fatalf("a request of %s ran as %q", name, e.User.Username)
				}
			}
		}
		if enough(got, counts) {
			return
		}
	}
	t.Errorf("the apiserver audited %v, want at least %v", got, counts)
}

// checkProxyAudit does the same for the audit log of the proxy (SIG-2).
func checkProxyAudit(t *testing.T, px *proxy.Proxy, counts map[string]int) {
	t.Helper()
	got := map[string]int{}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		lines, err := px.Audit()
		if err != nil {
			t.Fatal(err)
		}
		clear(got)
		for _, e := range lines {
			name := e.Text("user")
			got[name]++
			if e.Text("upstream_user") != prefix+name {
				t.Fatalf("an audit line of %s names %s", name, e.Text("upstream_user"))
			}
		}
		if enough(got, counts) {
			return
		}
	}
	t.Errorf("the proxy audited %v, want at least %v", got, counts)
}

func enough(got, want map[string]int) bool {
	for name, n := range want {
		if got[name] < n {
			return false
		}
	}
	return len(want) == users
}
