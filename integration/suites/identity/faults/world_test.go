package faults

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	ns     = "team-a"
	prefix = "t:"

	// notice is the condition that tells of a provider that cannot be asked.
	notice = "IssuerUnavailable"
	// cannotAsk is what a caller is told of it.
	cannotAsk = "the identity provider cannot be asked"
	// tooManyRefused is what comes after it for a token beyond the limits.
	tooManyRefused = " about this token now: too many tokens were refused lately"

	// soon bounds what must come; loaded machines are slow.
	soon = 60 * time.Second
	// answerLimit is how long a provider may take (AUTH-13), and noHang after
	// how long a caller must have an answer on a busy machine.
	answerLimit = 10 * time.Second
	noHang      = answerLimit + 8*time.Second
)

// api is the apiserver behind all clusters but those of the hub.
var api *kube.APIServer

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// The provider's library logs each token that it refuses.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	dir, err := os.MkdirTemp("", "idpfaults")
	if err == nil {
		defer os.RemoveAll(dir)
		api, err = kube.StartAPIServer(context.Background(), dir, kube.Options{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer api.Stop()
	return m.Run()
}

// cluster is a cluster in FrontProxy before an apiserver, with its certificate.
func cluster(of *kube.APIServer, name string, auth *v1.AuthConfig) []any {
	object := proxy.FrontProxyCluster(ns, name, of.URL, of.PKI.ServerCA, prefix)
	object.Spec.AuthConfig = auth
	return []any{object, proxy.FrontProxySecret(ns, name, of.URL, pki.Must(of.FrontProxy()))}
}

// world is a proxy with everything that looks at it.
type world struct {
	*caller
	*statuses
}

// newWorld starts a proxy with a cluster for each site, by name.
func newWorld(t *testing.T, o proxy.Options, sites map[string]*site) *world {
	t.Helper()
	o.Manifests = map[string]string{}
	for name, s := range sites {
		o.Manifests[name+".yaml"] = proxy.Manifests(cluster(api, name, s.auth(s))...)
	}
	w := watch(t, proxy.Start(t, o))
	w.serving(t, slices.Collect(maps.Keys(sites))...)
	return w
}

func watch(t *testing.T, px *proxy.Proxy) *world {
	return &world{caller: newCaller(t, px), statuses: watchStatuses(t, px)}
}

// answer is how a request ended.
type answer struct {
	*kube.Review
	took time.Duration
}

// text is all that the caller is told.
func (a *answer) text() string { return fmt.Sprint(a.Status.Message, " ", a.Header.Values("Warning")) }

// caller sends requests to a proxy.
type caller struct {
	px     *proxy.Proxy
	client *http.Client
}

func newCaller(t *testing.T, px *proxy.Proxy) *caller {
	c := &caller{px: px, client: px.Client("h2")}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// ask asks a cluster's apiserver who the bearer of a token is.
func (c *caller) ask(ctx context.Context, cluster, token string) (*answer, error) {
	return c.askWith(ctx, cluster, kube.Bearer(token))
}

// from is a caller with another address.
func (c *caller) from(t *testing.T, address string) *caller {
	other := newCaller(t, c.px)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	other.client.Transport.(*http.Transport).DialContext = dialer.DialContext
	return other
}

// askWith is ask with these headers.
func (c *caller) askWith(ctx context.Context, cluster string, header http.Header) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, noHang)
	defer cancel()
	began := time.Now()
	review, err := kube.WhoAmI(ctx, c.client, c.px.ClusterURL(ns, cluster), header)
	took := time.Since(began)
	if err != nil {
		return nil, fmt.Errorf("no answer of %s after %v: %w", cluster, took.Round(time.Millisecond), err)
	}
	return &answer{review, took}, nil
}

// good is an error unless the apiserver saw that user.
func (a *answer) good(user string) error {
	if a.Code != http.StatusCreated || a.User.Username != prefix+user {
		return fmt.Errorf("code %d as %q, want %s: %s", a.Code, a.User.Username, user, a.text())
	}
	return nil
}

// unavailable is an error unless the answer is the 503 of AUTH-13.
func (a *answer) unavailable() error {
	if a.Code != http.StatusServiceUnavailable || !strings.Contains(a.text(), cannotAsk) {
		return fmt.Errorf("code %d, want 503 with %q: %s", a.Code, cannotAsk, a.text())
	}
	return nil
}

// limited is an error unless the answer is the 503 for a token that the proxy
// asked no server about, which is no fault of the provider.
func (a *answer) limited() error {
	if a.Code != http.StatusServiceUnavailable || !strings.Contains(a.text(), cannotAsk+tooManyRefused) {
		return fmt.Errorf("code %d, want 503 with %q: %s", a.Code, tooManyRefused, a.text())
	}
	return nil
}

// statuses reads the status of all clusters for all who wait for one.
type statuses struct {
	mu      sync.Mutex
	changed chan struct{} // closed with the next reading
	last    map[string]*proxy.ClusterStatus
}

func watchStatuses(t *testing.T, px *proxy.Proxy) *statuses {
	s := &statuses{changed: make(chan struct{}), last: map[string]*proxy.ClusterStatus{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if list, err := px.Clusters(ctx); err == nil {
				s.publish(list)
			}
			select {
			case <-ctx.Done():
			case <-time.After(400 * time.Millisecond):
			}
		}
	}()
	return s
}

func (s *statuses) publish(list []proxy.ClusterStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		s.last[list[i].Name] = &list[i]
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait waits until the status of a cluster is as wanted.
func (s *statuses) wait(ctx context.Context, name, what string, want func(*proxy.ClusterStatus) bool) (*proxy.ClusterStatus, error) {
	timeout := time.After(soon)
	for {
		s.mu.Lock()
		status, changed := s.last[name], s.changed
		s.mu.Unlock()
		if status != nil && want(status) {
			return status, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout:
			return nil, fmt.Errorf("not within %v: %s has %s; its status is %+v", soon, name, what, status)
		}
	}
}

// serving waits for clusters that are ready and whose apiserver trusts the
// proxy: a request would have to find that out first.
func (s *statuses) serving(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.wait(t.Context(), name, "Ready and trust", func(c *proxy.ClusterStatus) bool {
			return c.Ready() == "True/Serving" && c.Status.UpstreamAuth != nil && c.Status.UpstreamAuth.Trust == v1.TrustTrusted
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// message is that of the notice, empty for none.
func message(c *proxy.ClusterStatus) string {
	if c := c.Condition(notice); c != nil {
		return c.Message
	}
	return ""
}
