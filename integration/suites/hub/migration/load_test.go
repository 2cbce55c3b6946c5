package migration

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

const (
	loadAgent = "migration-load"
	// between is the time between two requests of one user of a load.
	between = 60 * time.Millisecond
	// listed is what the users of a load list, besides asking who they are.
	listed = "/api/v1/namespaces/default/configmaps"
)

// load is a steady stream of alice's requests through the proxy.
type load struct {
	w    *world
	key  types.NamespacedName
	done chan struct{}
	all  sync.WaitGroup
	// running is held for reading by each request under way.
	running sync.RWMutex

	mu       sync.Mutex
	token    string
	minted   time.Time
	names    map[string]int
	total    int
	failures []string
}

// newLoad starts a load, which ends with the test at the latest. Each failed
// request fails the test.
func (w *world) newLoad(t *testing.T, key types.NamespacedName) *load {
	l := &load{w: w, key: key, done: make(chan struct{}), names: map[string]int{}}
	for _, request := range []struct {
		protocol string
		send     func(*http.Client) (string, error)
	}{{"h1", l.review}, {"h2", l.review}, {"h2", l.list}} {
		l.all.Go(func() {
			client := w.proxy.Client(request.protocol)
			client.Timeout = 30 * time.Second
			defer client.CloseIdleConnections()
			for {
				select {
				case <-l.done:
					return
				case <-time.After(between):
				}
				l.running.RLock()
				name, err := request.send(client)
				l.running.RUnlock()
				l.note(name, err)
			}
		})
	}
	t.Cleanup(func() { l.stop(t) })
	return l
}

// bearer is a token of at most a minute's age.
func (l *load) bearer() http.Header {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.minted) > time.Minute {
		l.token, l.minted = l.w.idp.Token(oidc.Alice, nil), time.Now()
	}
	header := kube.Bearer(l.token)
	header.Set("User-Agent", loadAgent)
	// A server may close an idle HTTP/1.1 connection just as a request comes,
	// as a reload does (RFC 9112, section 9.3.1): net/http repeats requests of
	// which it is told that they may be, and sends nothing of this.
	header["Idempotency-Key"] = nil
	return header
}

func (l *load) review(client *http.Client) (string, error) {
	r, err := kube.WhoAmI(l.w.ctx, client, l.w.proxy.ClusterURL(l.key.Namespace, l.key.Name), l.bearer())
	switch {
	case err != nil:
		return "", err
	case r.Code != http.StatusCreated:
		return "", fmt.Errorf("a review is answered %d: %s", r.Code, r.Status.Message)
	case r.User.Username != idpName && r.User.Username != prefixedName:
		return "", fmt.Errorf("a review names %q", r.User.Username)
	}
	return r.User.Username, nil
}

func (l *load) list(client *http.Client) (string, error) {
	req, err := http.NewRequestWithContext(l.w.ctx, http.MethodGet, l.w.proxy.ClusterURL(l.key.Namespace, l.key.Name)+listed, nil)
	if err != nil {
		return "", err
	}
	req.Header = l.bearer()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("a list is answered %d: %s", resp.StatusCode, body)
	}
	return "", err
}

func (l *load) note(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	l.names[name]++
	if err != nil && len(l.failures) < 20 {
		l.failures = append(l.failures, time.Now().Format(time.TimeOnly)+" "+err.Error())
	}
}

// seen is how many requests there were, and how many under a name.
func (l *load) seen(name string) (total, under int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.names[name]
}

// more waits until the apiserver has seen further requests under a name.
func (l *load) more(t *testing.T, name string) {
	t.Helper()
	_, before := l.seen(name)
	hub.Eventually(t, "requests of "+name, soon, func() bool { _, now := l.seen(name); return now >= before+10 })
}

// pause waits for the requests under way and holds the others back until resume.
func (l *load) pause()  { l.running.Lock() }
func (l *load) resume() { l.running.Unlock() }

// stop ends the load and says what came of it.
func (l *load) stop(t *testing.T) {
	select {
	case <-l.done:
		return
	default:
	}
	close(l.done)
	l.all.Wait()
	for _, f := range l.failures {
		t.Errorf("a request of the load on %s failed: %s", l.key, f)
	}
	t.Logf("%d requests on %s, reviews under %v", l.total, l.key, l.names)
}
