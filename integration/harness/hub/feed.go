package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Seen is one version of an object, and when it came.
type Seen[T any] struct {
	At     time.Time
	Object T
}

// Feed is every version of the objects of one kind that the hub has told of.
// What it holds, unlike what is polled, misses no state in between.
type Feed[T any] struct {
	mu  sync.Mutex
	all []Seen[T]
}

// ClustersPath and EventsPath are the collections that tests follow.
const (
	ClustersPath = "/apis/" + v1.GroupName + "/v1/" + v1.Resource
	EventsPath   = "/api/v1/events"
)

// Follow watches a collection of the hub until the test ends. The hub ends a
// watch itself when the CRD changes, and tells of all objects anew then.
func Follow[T any](tb testing.TB, h *Hub, path string) *Feed[T] {
	tb.Helper()
	client, err := rest.HTTPClientFor(h.AdminConfig())
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Feed[T]{}
	started, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		begin := sync.OnceFunc(func() { close(started) })
		for ctx.Err() == nil {
			resp, err := watch(ctx, client, h.URL+path)
			if err == nil {
				begin()
				err = f.read(resp.Body)
				resp.Body.Close()
			}
			if err != nil && ctx.Err() == nil {
				tb.Errorf("watching %s: %v", path, err)
				return
			}
		}
	}()
	tb.Cleanup(func() {
		cancel()
		<-ended
		client.CloseIdleConnections()
	})
	select {
	case <-started:
	case <-ended:
	}
	return f
}

// refusedFor is how long an apiserver may refuse a watch: for a moment it answers
// 429 when a CRD has changed, and 404 or 503 for less.
const refusedFor = time.Minute

func watch(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	for deadline := time.Now().Add(refusedFor); ; time.Sleep(100 * time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?watch=1", nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		resp.Body.Close()
		if ctx.Err() != nil || time.Now().After(deadline) {
			return nil, errors.New(resp.Status)
		}
	}
}

// read notes the events of one watch.
func (f *Feed[T]) read(body io.Reader) error {
	events := json.NewDecoder(body)
	for {
		var event struct {
			Type   string
			Object T
		}
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case event.Type == "ERROR":
			return fmt.Errorf("the hub sent %+v", event.Object)
		case event.Type != "DELETED":
			f.mu.Lock()
			f.all = append(f.all, Seen[T]{time.Now(), event.Object})
			f.mu.Unlock()
		}
	}
}

// Since are the versions that came after a time.
func (f *Feed[T]) Since(from time.Time) []Seen[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := len(f.all)
	for i > 0 && f.all[i-1].At.After(from) {
		i--
	}
	return append([]Seen[T](nil), f.all[i:]...)
}

// Await returns the first version after a time that is as wanted.
func (f *Feed[T]) Await(from time.Time, within time.Duration, want func(*T) bool) (Seen[T], bool) {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		for _, v := range f.Since(from) {
			if want(&v.Object) {
				return v, true
			}
		}
		if time.Now().After(deadline) {
			return Seen[T]{}, false
		}
	}
}
