package caddymodule

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// requestCounts counts the requests of one object by status code. Its clusters
// share it, and liveCollector tells those of the clusters in force: what a
// request counts that outlives its object goes with the object. In a registry
// of series such a request would make one anew, for ever, and whoever may create
// objects could make any number of them. The zero value is ready for use.
type requestCounts struct {
	// byCode holds an *atomic.Uint64 for each label of codeLabel.
	byCode sync.Map
}

// unknownRequests are those that no cluster served: the names in them are the
// client's to choose.
var unknownRequests requestCounts

// requestsOf returns the counts for a compiled object, those of the version
// before it or of the runtime before this one.
func (rt *runtime) requestsOf(spec *k8swatch.Cluster, old *cluster) *requestCounts {
	if old != nil {
		return old.requests
	}
	if before := currentRuntime(); before != nil && before != rt {
		if c := before.clusters()[spec.Key]; c != nil && c.spec.UID == spec.UID {
			return c.requests
		}
	}
	return new(requestCounts)
}

// countRequest counts an answer; c is the cluster that served the request, nil
// for none. One that is gone by now, in favour of another of its name perhaps,
// counts as unknown.
func (rt *runtime) countRequest(c *cluster, code int, elapsed time.Duration) {
	counts := &unknownRequests
	if c != nil {
		if now := rt.clusters()[c.spec.Key]; now != nil && now.spec.UID == c.spec.UID {
			counts = now.requests
		}
	}
	counts.add(code)
	requestDuration.Observe(elapsed.Seconds())
}

func (n *requestCounts) add(code int) {
	label := codeLabel(code)
	count, ok := n.byCode.Load(label)
	if !ok {
		count, _ = n.byCode.LoadOrStore(label, new(atomic.Uint64))
	}
	count.(*atomic.Uint64).Add(1)
}

func (n *requestCounts) collect(ch chan<- prometheus.Metric, namespace, name string) {
	n.byCode.Range(func(label, count any) bool {
		ch <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue,
			float64(count.(*atomic.Uint64).Load()), namespace, name, label.(string))
		return true
	})
}

// codeLabel is the status code, or "other" for one that HTTP does not know:
// an apiserver must not choose how many series there are.
func codeLabel(code int) string {
	if http.StatusText(code) == "" && code != statusClientClosedRequest && code != 0 {
		return "other"
	}
	return strconv.Itoa(code)
}
