package serving

import (
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// requestCounts counts the requests of one object by status code. All versions of
// the cluster share it, and clusterCollector reports the counts of the clusters in
// force. So the counts go with the object, also those of a request that ends after
// its object. A registry of series would keep such a series for ever, and the
// authors of objects could make any number of them. The zero value is ready for use.
type requestCounts struct {
	// byCode holds an *atomic.Uint64 for each status code.
	byCode sync.Map
}

// requestsOf returns the counts for a compiled object, those of the version
// before it or of the runtime before this one.
func (rt *Runtime) requestsOf(spec *k8swatch.Cluster, old *Cluster) *requestCounts {
	if old != nil {
		return old.requests
	}
	if before := rt.process.Current(); before != nil && before != rt {
		if c := before.clusters()[spec.Key]; c != nil && c.Spec.UID == spec.UID {
			return c.requests
		}
	}
	return new(requestCounts)
}

// CountRequest counts an answer; c is the cluster that served the request, nil
// for none. A cluster that is gone by now, perhaps replaced by another object of its
// name, counts as unknown.
func (rt *Runtime) CountRequest(c *Cluster, code int, elapsed time.Duration) {
	counts := &rt.process.unknown
	if c != nil {
		if now := rt.clusters()[c.Spec.Key]; now != nil && now.Spec.UID == c.Spec.UID {
			counts = now.requests
		}
	}
	counts.add(code)
	rt.process.Metrics.RequestDuration.Observe(elapsed.Seconds())
}

func (n *requestCounts) add(code int) {
	if !isKnownCode(code) {
		code = otherCode
	}
	count, ok := n.byCode.Load(code)
	if !ok {
		count, _ = n.byCode.LoadOrStore(code, new(atomic.Uint64))
	}
	count.(*atomic.Uint64).Add(1)
}

func (n *requestCounts) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc, namespace, name string) {
	n.byCode.Range(func(code, count any) bool {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue,
			float64(count.(*atomic.Uint64).Load()), namespace, name, codeLabel(code.(int)))
		return true
	})
}

// StatusClientClosedRequest is what Caddy records when the client left.
const StatusClientClosedRequest = 499

// otherCode stands for the codes that HTTP does not know: an apiserver must not
// choose how many series there are.
const otherCode = -1

// isKnownCode reports whether a code has a series of its own; 0 is a request
// that was not answered.
func isKnownCode(code int) bool {
	return code == 0 || code == StatusClientClosedRequest || http.StatusText(code) != ""
}

func codeLabel(code int) string {
	if code == otherCode {
		return "other"
	}
	return strconv.Itoa(code)
}

// SourceOf is the network of a client, for limits: the owner of one IPv6 address
// has the /64 around it.
func SourceOf(ip string) string {
	address, err := netip.ParseAddr(ip)
	if err != nil || address.Unmap().Is4() {
		return ip
	}
	network, err := address.Prefix(64)
	if err != nil {
		return ip
	}
	return network.String()
}
