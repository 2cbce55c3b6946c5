package idpfaults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	ns     = "team-a"
	prefix = "t:"

	// notice is the condition that tells of a provider that cannot be asked.
	notice = "IssuerUnavailable"
	// cannotAsk is what a caller is told of it.
	cannotAsk = "the identity provider cannot be asked"

	// soon bounds what must come; loaded machines are slow.
	soon = 60 * time.Second
	// answerLimit is how long a provider may take (AUTH-13), and noHang after
	// how long a caller must have an answer on a busy machine.
	answerLimit = 10 * time.Second
	noHang      = answerLimit + 8*time.Second
)

// cluster is a cluster in FrontProxy before that apiserver, with its
// certificate.
func cluster(api *kube.APIServer, name string, auth *v1.AuthConfig) []any {
	object := proxy.FrontProxyCluster(ns, name, api.URL, api.PKI.ServerCA, prefix)
	object.Spec.AuthConfig = auth
	return []any{object, proxy.FrontProxySecret(ns, name, api.URL, frontProxyPair(api))}
}

// frontProxyPair is one certificate for all clusters.
func frontProxyPair(api *kube.APIServer) *pki.KeyPair {
	pairs.Lock()
	defer pairs.Unlock()
	if pairs.of[api] == nil {
		pairs.of[api] = pki.Must(api.FrontProxy())
	}
	return pairs.of[api]
}

var pairs = struct {
	sync.Mutex
	of map[*kube.APIServer]*pki.KeyPair
}{of: map[*kube.APIServer]*pki.KeyPair{}}

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
	ctx, cancel := context.WithTimeout(ctx, noHang)
	defer cancel()
	began := time.Now()
	review, err := kube.WhoAmI(ctx, c.client, c.px.ClusterURL(ns, cluster), kube.Bearer(token))
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
			case <-time.After(200 * time.Millisecond):
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

// serving waits for clusters that are ready.
func (s *statuses) serving(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.wait(t.Context(), name, "Ready", func(c *proxy.ClusterStatus) bool { return strings.HasPrefix(c.Ready(), "True/") })
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
