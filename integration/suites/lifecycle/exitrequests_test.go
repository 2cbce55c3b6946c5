package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// errNoConnection is a request that could not be made, or was the first of its
// connection: a load balancer has sent those elsewhere before the listener
// closes, when net/http drops what it has just accepted.
var errNoConnection = errors.New("no connection")

// STREAM-2: no request is lost on a connection that was used before. A client
// of HTTP/1.1 may not repeat a POST that finds its kept connection closed, so it
// must have been told to leave in time.
func TestSTREAM2LosesNoRequest(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{
		ShutdownDelay: 3 * time.Second, GracePeriod: 10 * time.Second,
		Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)},
	})
	px.MustServe(t, namespace, "cluster-a")
	waitCode(t, px, "cluster-a", 200)

	var clients sync.WaitGroup
	all := make([]poster, 8)
	for i := range all {
		all[i] = poster{px: px, protocol: "h1", unready: make(chan struct{})}
		if i%4 == 3 {
			all[i].protocol = "h2"
		}
		clients.Go(all[i].run)
	}
	time.Sleep(time.Second)
	terminate(t, px)
	eventually(t, "readiness fails", patience, func() error {
		if code, err := probe(px, "/readyz"); err == nil && code == http.StatusOK {
			return errors.New("it is ready")
		}
		return nil
	})
	for i := range all {
		close(all[i].unready)
	}
	clients.Wait()
	exited(t, px, exitSlack)
	for i := range all {
		all[i].check(t)
	}
}

// poster changes something again and again on a kept connection.
type poster struct {
	px       *proxy.Proxy
	protocol string
	// unready is closed when the proxy is known to be stopping.
	unready chan struct{}

	// before and after count answers, kept those of after that do not close.
	before, after, kept int

	failures []string
}

func (p *poster) run() {
	client := p.px.Client(p.protocol)
	defer client.CloseIdleConnections()
	for stopping := false; ; time.Sleep(time.Millisecond) {
		if !stopping {
			select {
			case <-p.unready:
				stopping = true
			default:
			}
		}
		closes, err := p.post(client)
		switch {
		case stopping && errors.Is(err, errNoConnection):
			return
		case err != nil:
			p.failures = append(p.failures, err.Error())
			return
		case !stopping:
			p.before++
		default:
			p.after++
			if !closes {
				p.kept++
			}
		}
	}
}

// post makes one request, which may not fail, and says whether the connection
// is to be closed after it.
func (p *poster) post(client *http.Client) (closes bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.px.URL+target("cluster-a", getPath), strings.NewReader("{}"))
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+token())
	var reused bool
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// Of HTTP/2 the client itself repeats what GOAWAY says was not read.
		GetConn: func(string) { reused = false },
		GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused },
	}))
	resp, err := client.Do(req)
	if err != nil {
		if !reused {
			err = fmt.Errorf("%w: %w", errNoConnection, err)
		}
		return false, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK {
		return false, errors.New(resp.Status)
	}
	return resp.Close, nil
}

func (p *poster) check(t *testing.T) {
	t.Helper()
	t.Logf("%s: %d requests, %d more while the proxy stops", p.protocol, p.before, p.after)
	for _, failure := range p.failures {
		t.Error(failure)
	}
	if p.before == 0 || p.after == 0 {
		t.Error("that is no load")
	}
	if p.protocol == "h1" && p.kept > 0 {
		t.Errorf("%d of the last answers keep their connection", p.kept)
	}
}
