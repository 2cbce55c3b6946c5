//go:build long

package node

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

const (
	// bulk is a namespace with bulkObjects ConfigMaps of a megabyte.
	bulk        = "bulk"
	bulkObjects = 105
	megabyte    = 1_000_000
)

// testList lists 100 MB, whole and as a watch that begins with all objects
// (RELAY-3, RELAY-6).
func testList(t *testing.T, b *busy) {
	clients := b.clients(t)
	b.node.Kubectl(t).MustRun(t, "create", "namespace", bulk)
	writer := b.core(t, clients[0], "writer")
	start := time.Now()
	for n := range bulkObjects {
		content := map[string]string{"data": strings.Repeat(fmt.Sprintf("%09d ", n), megabyte/10)}
		if _, err := writer.ConfigMaps(bulk).Create(t.Context(), configMap(fmt.Sprintf("large-%03d", n), content), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("made %d objects in %s", bulkObjects, time.Since(start).Round(10*time.Millisecond))

	const path = "/api/v1/namespaces/" + bulk + "/configmaps"
	admin, err := rest.HTTPClientFor(b.node.API.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.CloseIdleConnections()
	want, _ := readList(t, admin, b.node.API.URL+path, http.Header{})
	before := peakMemory(t, b.px.PID())
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			plain := b.px.Client(c.protocol)
			defer plain.CloseIdleConnections()
			got, size := readList(t, plain, c.url+path, kube.Bearer(b.idp.Token(oidc.Alice, nil)))
			if got != want || size < bulkObjects*megabyte {
				t.Errorf("%d bytes came, with %s; directly %s", size, got, want)
			}
			start := time.Now()
			names := c.MustRun(t, "get", "configmaps", "--namespace="+bulk, `--output=jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`).Stdout
			if count := strings.Count(names, "large-"); count != bulkObjects {
				t.Errorf("kubectl lists %d objects", count)
			}
			t.Logf("kubectl took %s", time.Since(start).Round(10*time.Millisecond))
		})
	}
	for _, c := range clients[:2] {
		t.Run("WatchList, "+c.name, func(t *testing.T) { testWatchList(t, b, c) })
	}
	if grown := peakMemory(t, b.px.PID()) - before; grown > 64<<10 {
		t.Errorf("the proxy's memory grew by %d KiB", grown)
	}
	b.node.Kubectl(t).MustRun(t, "delete", "namespace", bulk)
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// readList returns the digest of the items of a list, and its size. The resource
// version before them differs from one list to the next.
func readList(t *testing.T, client *http.Client, url string, header http.Header) (digest string, size int64) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	req.Header.Set("Accept-Encoding", "identity")
	start := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	head, err := body.Peek(512)
	items := bytes.Index(head, []byte(`"items":`))
	if err != nil || items < 0 {
		t.Fatalf("%s, %v: %.300s", resp.Status, err, head)
	}
	_, _ = body.Discard(items) // which Peek has read
	hash := sha256.New()
	if size, err = io.Copy(hash, body); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes over %s took %s", size, resp.Proto, time.Since(start).Round(10*time.Millisecond))
	return fmt.Sprintf("%x", hash.Sum(nil)), size
}

// core is client-go through the proxy, under a name that the audit log has.
func (b *busy) core(t *testing.T, c client, userAgent string) *corev1client.CoreV1Client {
	t.Helper()
	config := &rest.Config{
		Host: c.url, QPS: -1, BearerToken: b.idp.Token(oidc.Alice, nil), Dial: b.node.Namespaces.DialContext, UserAgent: userAgent,
		TLSClientConfig: rest.TLSClientConfig{CAData: b.px.CA.PEM},
	}
	if c.protocol == "h1" {
		config.NextProtos = []string{"http/1.1"}
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// follow keeps a store of the ConfigMaps of a namespace until the test ends.
func follow(t *testing.T, client *corev1client.CoreV1Client, namespace string) cache.Store {
	t.Helper()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	list := cache.NewListWatchFromClient(client.RESTClient(), "configmaps", namespace, fields.Everything())
	reflector := cache.NewReflector(list, &corev1.ConfigMap{}, store, 0)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reflector.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return store
}

// mustHold waits until a store is as wanted.
func mustHold(t *testing.T, store cache.Store, what string, want func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !want(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the store has %d objects, and not %s", len(store.ListKeys()), what)
		}
	}
}

// testWatchList has client-go ask for all objects by a watch, and for changes by
// the same one.
func testWatchList(t *testing.T, b *busy, c client) {
	agent := "watchlist-" + c.protocol
	client := b.core(t, c, agent)
	start := time.Now()
	store := follow(t, client, bulk)
	mustHold(t, store, "all", func() bool { return len(store.ListKeys()) >= bulkObjects })
	t.Logf("%d objects took %s", len(store.ListKeys()), time.Since(start).Round(10*time.Millisecond))
	if _, err := client.ConfigMaps(bulk).Create(t.Context(), configMap(agent, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustHold(t, store, "the new one", func() bool { _, ok, _ := store.GetByKey(bulk + "/" + agent); return ok })
	for _, e := range b.node.AuditEvents(t) {
		if e.UserAgent == agent && e.Verb == "list" {
			t.Errorf("client-go made a list: %s", e.RequestURI)
		}
	}
	b.node.API.MustAudit(t, func(e *auditv1.Event) bool {
		return e.UserAgent == agent && e.Verb == "watch" && strings.Contains(e.RequestURI, "sendInitialEvents=true") &&
			e.User.Username == prefix+oidc.Alice && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusOK
	})
}
