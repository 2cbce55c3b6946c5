package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// What tests do many times a second goes over a connection of the hub's own: a
// kubectl for each look at a status costs more than the server that is tested.

type onceClient struct {
	once   sync.Once
	client *http.Client
	server string
	err    error
}

// request sends a request of Admin and returns its code and body.
func (h *Hub) request(tb testing.TB, method, path, contentType string, body []byte) (int, []byte) {
	tb.Helper()
	h.client.once.Do(func() { h.client.client, h.client.server, h.client.err = h.Admin.Client() })
	if h.client.err != nil {
		tb.Fatal(h.client.err)
	}
	req, err := http.NewRequestWithContext(tb.Context(), method, h.client.server+path, bytes.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := h.client.client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, answer
}

// must is request for what has to succeed.
func (h *Hub) must(tb testing.TB, method, path, contentType string, body []byte) []byte {
	tb.Helper()
	code, answer := h.request(tb, method, path, contentType, body)
	if code < 200 || code > 299 {
		tb.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	return answer
}

// Get decodes the object or list at a path of the hub, which has to be there.
func (h *Hub) Get(tb testing.TB, path string, into any) {
	tb.Helper()
	if err := json.Unmarshal(h.must(tb, http.MethodGet, path, "", nil), into); err != nil {
		tb.Fatalf("GET %s: %v", path, err)
	}
}

// Find is Get for an object that may be missing, which it reports.
func (h *Hub) Find(tb testing.TB, path string, into any) bool {
	tb.Helper()
	if code, _ := h.request(tb, http.MethodGet, path, "", nil); code == http.StatusNotFound {
		return false
	}
	h.Get(tb, path, into)
	return true
}

// Patch is a merge patch of an object.
func (h *Hub) Patch(tb testing.TB, namespace, kind, name, patch string) {
	tb.Helper()
	h.must(tb, http.MethodPatch, objectPath(namespace, kind, name), "application/merge-patch+json", []byte(patch))
}

// Delete removes an object and waits until it is gone.
func (h *Hub) Delete(tb testing.TB, namespace, kind, name string) {
	tb.Helper()
	path := objectPath(namespace, kind, name)
	h.must(tb, http.MethodDelete, path, "", nil)
	Eventually(tb, fmt.Sprintf("%s %s/%s is gone", kind, namespace, name), soon, func() bool {
		code, _ := h.request(tb, http.MethodGet, path, "", nil)
		if code != http.StatusNotFound {
			time.Sleep(50 * time.Millisecond)
		}
		return code == http.StatusNotFound
	})
}

// objectPath is that of an object, or of the collection for an empty name. The
// kind is ProxyKubeApi's resource or a kind of the core group.
func objectPath(namespace, kind, name string) string {
	group, resource := "/api/v1", strings.TrimSuffix(kind, "s")+"s"
	if kind == v1.Resource {
		group = "/apis/" + v1.GroupName + "/v1"
	}
	path := group + "/namespaces/" + namespace + "/" + resource
	if name != "" {
		path += "/" + name
	}
	return path
}
