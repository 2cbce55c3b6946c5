package serving

import (
	"context"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// emptySource knows no object.
type emptySource struct{ k8swatch.Source }

func (emptySource) Keys() []k8swatch.Key { return nil }

// REC-2: a configuration comes into force before the hub has been read. That is
// no list without clusters: the replica is not ready, and answers 503 and not 404.
func TestREC2NoClustersBeforeTheFirstList(t *testing.T) {
	rt := newTestRuntime(newTestProcess())
	rt.source = emptySource{}
	// turn has compileChanges take up what pending holds, and ends it.
	turn := func() {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			rt.compileChanges(ctx, func() {})
		}()
		rt.pending.add()
		for len(rt.pending.wake) > 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-ended
	}
	if turn(); rt.Snapshot() != nil {
		t.Error("clusters are known before the first list")
	}
	rt.listed.Store(true)
	if turn(); rt.Snapshot() == nil {
		t.Error("no clusters are known after the first list")
	}
}
