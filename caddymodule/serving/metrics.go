package serving

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/version"
)

// Metrics are the metrics of SIG-1. A Process has them once, because a reload
// builds a new registry while requests of the old configuration still run; every
// configuration registers the same collectors. No label holds a user, a token or
// a path.
type Metrics struct {
	IdentityRefused  *prometheus.CounterVec // reason
	UpstreamRejected *prometheus.CounterVec // mode
	RequestDuration  prometheus.Histogram
	Authentications  *prometheus.CounterVec // method, result
	TokenCache       *prometheus.CounterVec // result
	TokenExchanges   *prometheus.CounterVec // result

	all []prometheus.Collector
}

func newMetrics(p *Process) *Metrics {
	m := new(Metrics)
	m.IdentityRefused = m.counter("proxyauth_upstream_identity_refused_total",
		"Requests refused because their identity cannot be forwarded, by reason.", "reason")
	m.UpstreamRejected = m.counter("proxyauth_upstream_rejected_total",
		"Requests answered 502 because the cluster does not trust this proxy, by upstream mode.", "mode")
	m.RequestDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "proxyauth_request_duration_seconds",
		Help:    "Time from the request to the headers of its response.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	m.Authentications = m.counter("proxyauth_authentication_total",
		"Authentications by validator and result (ok, wrong_audience: accepted under audience_validation warn, refused, unavailable, canceled).",
		"method", "result")
	m.TokenCache = m.counter("proxyauth_token_cache_total", "Look-ups in the token cache by result.", "result")
	m.TokenExchanges = m.counter("proxyauth_token_exchange_total",
		"Token exchanges (RFC 8693) by result (ok, refused by the provider, invalid: what it gave is not accepted by the cluster, unavailable).", "result")
	buildInfo := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "proxyauth_build_info",
		Help:        "Always 1; the label is the version of ProxyAuthK8S.",
		ConstLabels: prometheus.Labels{"version": version.String()},
	}, func() float64 { return 1 })
	m.all = append(m.all, m.RequestDuration, buildInfo, newClusterCollector(p))
	return m
}

// counter makes a counter and adds it to the collectors.
func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.all = append(m.all, c)
	return c
}

// Collectors are all metrics, to be registered with each configuration.
func (m *Metrics) Collectors() []prometheus.Collector { return m.all }

// clusterCollector reads requests, trust and certificate expiry from the clusters
// in force when they are asked for, so that nothing stays of a deleted one.
type clusterCollector struct {
	process                     *Process
	requests, trust, certExpiry *prometheus.Desc
}

func newClusterCollector(p *Process) *clusterCollector {
	return &clusterCollector{
		process: p,
		requests: prometheus.NewDesc("proxyauth_requests_total",
			"Requests by cluster and status code; unknown clusters have empty labels.",
			[]string{"namespace", "cluster", "code"}, nil),
		trust: prometheus.NewDesc("proxyauth_upstream_trust",
			"1 for the current verdict on whether the apiserver honours the proxy.",
			[]string{"namespace", "cluster", "trust"}, nil),
		certExpiry: prometheus.NewDesc("proxyauth_client_cert_expiry_seconds",
			"Seconds until the client certificate in use expires, the front-proxy one or client_cert; negative once it has.",
			[]string{"namespace", "cluster"}, nil),
	}
}

// Describe lists the metrics.
func (c *clusterCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.requests
	ch <- c.trust
	ch <- c.certExpiry
}

// Collect reads the metrics of the clusters in force.
func (c *clusterCollector) Collect(ch chan<- prometheus.Metric) {
	c.process.unknown.collect(ch, c.requests, "", "")
	rt := c.process.Current()
	if rt == nil {
		return
	}
	now := time.Now()
	for key, cluster := range rt.clusters() {
		cluster.requests.collect(ch, c.requests, key.Namespace, key.Name)
		// A replica that does not lead asks once, and its verdict gets old (TRUST-1).
		if trust := cluster.Trust.State().Told(now); trust != "" {
			ch <- prometheus.MustNewConstMetric(c.trust, prometheus.GaugeValue, 1, key.Namespace, key.Name, string(trust))
		}
		// In preparation the front-proxy certificate is the one of interest; the
		// status shows the other one.
		if cert := cmp.Or(cluster.Spec.FrontProxy, cluster.Spec.ClientCert); cert != nil {
			ch <- prometheus.MustNewConstMetric(c.certExpiry, prometheus.GaugeValue,
				cert.Leaf.NotAfter.Sub(now).Seconds(), key.Namespace, key.Name)
		}
	}
}
