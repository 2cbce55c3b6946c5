package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// load is steady traffic of one user to one address, of each kind at once: on
// new and on kept connections, HTTP/1.1 and HTTP/2, open watches, kubectl.
type load struct {
	address string
	token   string
	i       *installation

	stop    context.CancelFunc
	running sync.WaitGroup
	// requests were answered, watches ended cleanly.
	requests, watches atomic.Int64

	mu       sync.Mutex
	failures []string
}

const (
	// pause is between the requests of one client.
	pause = 40 * time.Millisecond
	// kubectlPause is between two kubectl, which cost a lot of CPU time.
	kubectlPause = time.Second
	// requestTimeout is no measure of the proxy but an end of the test.
	requestTimeout = 30 * time.Second
)

// startLoad starts the traffic to a Service or pod, without kubectl to a pod.
func (i *installation) startLoad(t *testing.T, address string, kubectl bool) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{address: address, token: i.idp.Token(oidc.Alice, nil), i: i, stop: cancel}
	t.Cleanup(func() { l.stop(); l.running.Wait() })
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		l.running.Go(func() { l.repeat(ctx, protocol, false) })
		l.running.Go(func() { l.repeat(ctx, protocol, true) })
		l.running.Go(func() { l.watch(ctx, protocol) })
	}
	if kubectl {
		k := i.kubectl(t, "front", l.token)
		l.running.Go(func() { l.kubectl(ctx, k) })
	}
	return l
}

// mustEnd ends the traffic, of which nothing may have failed.
func (l *load) mustEnd(t *testing.T) {
	t.Helper()
	l.stop()
	l.running.Wait()
	t.Logf("%d requests, %d watches have ended", l.requests.Load(), l.watches.Load())
	for n, failure := range l.failures {
		if n == 10 {
			t.Errorf("and %d more", len(l.failures)-n)
			break
		}
		t.Error(failure)
	}
	if l.requests.Load() < 50 {
		t.Error("that is no load")
	}
}

// fail notes a failure, unless it is the end of the load.
func (l *load) fail(ctx context.Context, format string, args ...any) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// client speaks that protocol only and connects to the address of the load.
func (l *load) client(protocol string) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(protocol == "HTTP/1.1")
	protocols.SetHTTP2(protocol == "HTTP/2.0")
	return &http.Client{Transport: &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return l.i.node.Namespaces.DialContext(ctx, network, l.address)
		},
		TLSClientConfig: &tls.Config{RootCAs: l.i.serving.Pool(), ServerName: host, MinVersion: tls.VersionTLS12},
	}}
}

// repeat makes one request after the other, reads and reviews in turn, each on
// a new connection or all on one that is kept.
func (l *load) repeat(ctx context.Context, protocol string, keep bool) {
	client := l.client(protocol)
	defer client.CloseIdleConnections()
	what := fmt.Sprintf("%s, connections kept: %v", protocol, keep)
	for n := 0; ctx.Err() == nil; n++ {
		var err error
		if n%2 == 0 {
			err = l.request(ctx, client, protocol, http.MethodGet, "/api/v1/namespaces/default/pods/"+streamtest.Pod, "")
		} else {
			err = l.request(ctx, client, protocol, http.MethodPost, kube.ReviewPath, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
		}
		if err != nil {
			l.fail(ctx, "%s: %v", what, err)
		} else {
			l.requests.Add(1)
		}
		if !keep {
			client.CloseIdleConnections()
		}
		sleep(ctx, pause)
	}
}

func (l *load) request(ctx context.Context, client *http.Client, protocol, method, path, body string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := l.do(ctx, client, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 || resp.Proto != protocol || !bytes.Contains(answer, []byte(`"kind":"`)) {
		return fmt.Errorf("%s %s: %s, %s: %.300s", method, path, resp.Proto, resp.Status, answer)
	}
	return nil
}

func (l *load) do(ctx context.Context, client *http.Client, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, clusterURL("front")+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return client.Do(req)
}

// watch keeps a watch open. It may end, as watches do, but not break.
func (l *load) watch(ctx context.Context, protocol string) {
	client := l.client(protocol)
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		if err := l.watchOnce(ctx, client); err != nil {
			l.fail(ctx, "watch by %s: %v", protocol, err)
			sleep(ctx, pause)
			continue
		}
		l.watches.Add(1)
	}
}

func (l *load) watchOnce(ctx context.Context, client *http.Client) error {
	resp, err := l.do(ctx, client, http.MethodGet, "/api/v1/namespaces/default/pods?watch=1&timeoutSeconds=600", "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (l *load) kubectl(ctx context.Context, k kube.Kubectl) {
	for ctx.Err() == nil {
		r, err := k.Run(ctx, "get", "pod", streamtest.Pod, "--output=name")
		if err != nil || r.ExitCode != 0 || r.Stdout != "pod/"+streamtest.Pod+"\n" {
			l.fail(ctx, "kubectl: %v, %+v", err, r)
		} else {
			l.requests.Add(1)
		}
		sleep(ctx, kubectlPause)
	}
}

// sleep ends early with the context.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
