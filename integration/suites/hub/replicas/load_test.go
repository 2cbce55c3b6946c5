package replicas

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
)

// load is steady traffic through one replica to one cluster.
type load struct {
	r    *replica
	name string
	end  chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	answered int
	failures []string
}

// every is the pause between two requests of a load.
const every = 25 * time.Millisecond

// startLoad asks a cluster all the time; every answer must be a 200.
func startLoad(t *testing.T, r *replica, name string) *load {
	t.Helper()
	l := &load{r: r, name: name, end: make(chan struct{})}
	for _, protocol := range []string{"h1", "h2"} {
		client := r.Client(protocol)
		l.done.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-l.end:
					return
				case <-time.After(2 * every):
					l.once(t, client)
				}
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) once(t *testing.T, client *http.Client) {
	code, message, err := l.r.try(t, client, l.name)
	if err != nil {
		message = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && code == http.StatusOK {
		l.answered++
	} else if t.Context().Err() == nil {
		l.failures = append(l.failures, fmt.Sprintf("%s: %d %s", time.Now().Format(time.TimeOnly), code, message))
	}
}

// more waits until ten more of its requests were answered, one way or another.
func (l *load) more(t *testing.T) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.answered + len(l.failures)
	}
	before := count()
	hub.Eventually(t, "requests through "+l.r.pod, soon, func() bool { return count() >= before+10 })
}

func (l *load) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.end:
	default:
		close(l.end)
	}
}

// mustHaveServed ends the load and fails the test for each request that failed.
func (l *load) mustHaveServed(t *testing.T) {
	t.Helper()
	l.stop()
	l.done.Wait()
	t.Logf("%d requests through %s", l.answered, l.r.pod)
	if l.answered == 0 {
		t.Errorf("no request through %s was answered", l.r.pod)
	}
	for i, failure := range l.failures {
		if i == 5 {
			t.Errorf("and %d more", len(l.failures)-i)
			break
		}
		t.Errorf("a request through %s failed at %s", l.r.pod, failure)
	}
}
