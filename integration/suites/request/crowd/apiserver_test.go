package crowd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// apiserver is a real one that allows 100 requests at a time on a connection, and
// tells the client to open another one after 1 request in 50.
type apiserver struct {
	*kube.APIServer
	px     *proxy.Proxy
	people []person
}

func TestOnApiserver(t *testing.T) {
	idp := oidc.Start(t, oidc.Options{})
	a := &apiserver{APIServer: kube.Start(t, kube.Options{ExtraArgs: []string{"--goaway-chance=0.02"}}), people: people(idp)}
	a.px = proxy.Start(t, proxy.Options{
		LogLevel: "INFO",
		Manifests: map[string]string{"prod.yaml": proxy.Manifests(
			proxy.FrontProxyCluster("team-a", "prod", a.URL, a.PKI.ServerCA, prefix, authenticator(idp)),
			proxy.FrontProxySecret("team-a", "prod", a.URL, pki.Must(a.FrontProxy())),
		)},
	})
	a.px.MustServe(t, "team-a", "prod")
	a.Kubectl(t, "").MustRun(t, "create", "clusterrolebinding", "everybody", "--clusterrole=admin", "--group="+prefix+"everybody")
	t.Run("ID-3 each request has its own identity", a.eachHasItsOwn)
	t.Run("RELAY-5 GOAWAY loses no write", a.losesNoWrite)
	t.Run("RELAY-1 many watches beside lists that nobody reads", a.manyWatches)
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// configMap is an object of about that size.
func configMap(name string, size int) string {
	b, _ := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
		"data": map[string]string{"x": strings.Repeat("x", size)},
	})
	return string(b)
}

// RELAY-5: the apiserver sends GOAWAY while requests are on their way. Small ones
// reach it once all the same; a large one may be answered with a 502, which is
// right that it was not processed: the object can be created.
func (a *apiserver) losesNoWrite(t *testing.T) {
	const writes, writers = 300, 15
	client := a.px.Client("h2")
	defer client.CloseIdleConnections()
	url := a.px.ClusterURL("team-a", "prod") + configMaps
	sizes := []int{1 << 10, 60_000, 200_000}
	var n, repeated atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := n.Add(1); i <= writes; i = n.Add(1) {
				size := sizes[i%int64(len(sizes))]
				body := configMap(fmt.Sprintf("write-%d", i), size)
				code, answer, err := send(t.Context(), client, http.MethodPost, url, a.people[0].token, body)
				for err == nil && code == http.StatusBadGateway && size > 64<<10 && bytes.Contains(answer, []byte("did not process the request")) {
					repeated.Add(1)
					code, answer, err = send(t.Context(), client, http.MethodPost, url, a.people[0].token, body)
				}
				if err != nil || code != http.StatusCreated {
					t.Errorf("write %d of %d bytes: %d %.300s %v", i, size, code, answer, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d writes, %d of 200 kB were not processed at first", writes, repeated.Load())
}

// RELAY-1: more watches than one connection to the apiserver carries each get
// their event at once, while others ask for lists of megabytes and do not read them.
func (a *apiserver) manyWatches(t *testing.T) {
	const watches, lists = 250, 10
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	base := a.px.ClusterURL("team-a", "prod") + configMaps
	clients := []*http.Client{a.px.Client("h2"), a.px.Client("h2"), a.px.Client("h1")}
	var arrived, open sync.WaitGroup
	start := time.Now()
	for i := range watches {
		open.Add(1)
		arrived.Go(func() {
			body, err := watch(ctx, clients[i%len(clients)], base+"?watch=true&fieldSelector=metadata.name%3Dthe-event", a.people[i%users].token)
			open.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer body.Close()
			if line, err := bufio.NewReader(body).ReadString('\n'); err != nil || !strings.Contains(line, `"the-event"`) {
				t.Errorf("watch %d: %q, %v", i, line, err)
			}
		})
	}
	open.Wait()
	t.Logf("%d watches opened in %s", watches, time.Since(start).Round(time.Millisecond))
	unread := rawclient.MustDialUnreadH2(t, a.px.Host, a.px.CA.Pool())
	path := strings.TrimPrefix(base, a.px.URL)
	for range lists {
		s, err := unread.Open(rawclient.Fields("GET", a.px.Host, path, rawclient.Field{Name: "authorization", Value: "Bearer " + a.people[1].token}), true)
		if err != nil {
			t.Fatal(err)
		}
		if code, _, err := s.Head(); err != nil || code != http.StatusOK {
			t.Fatalf("a list: %d, %v", code, err)
		}
	}
	start = time.Now()
	code, answer, err := send(ctx, clients[0], http.MethodPost, base, a.people[0].token, configMap("the-event", 100))
	if err != nil || code != http.StatusCreated {
		t.Fatalf("%d %s %v", code, answer, err)
	}
	arrived.Wait()
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the last watch had its event after %s", took)
	} else {
		t.Logf("the last watch had its event after %s", took.Round(time.Millisecond))
	}
}

func watch(ctx context.Context, client *http.Client, url, token string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = kube.Bearer(token)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("the watch: %s", resp.Status)
	}
	return resp.Body, nil
}
