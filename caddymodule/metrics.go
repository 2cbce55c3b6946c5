package caddymodule

import (
	"cmp"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The metrics of SIG-1. They are package-level because a Caddy reload builds a
// new registry while requests of the old configuration still run; every
// configuration registers the same collectors. No label holds a user, a token
// or a path.
var (
	identityRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxyauth_upstream_identity_refused_total",
		Help: "Requests refused because their identity cannot be forwarded, by reason.",
	}, []string{"reason"})
	upstreamRejected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxyauth_upstream_rejected_total",
		Help: "Requests answered 502 because the cluster does not trust this proxy, by upstream mode.",
	}, []string{"mode"})
	requestDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "proxyauth_request_duration_seconds",
		Help:    "Time from the request to the headers of its response.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	authentications = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxyauth_authentication_total",
		Help: "Authentications by validator and result (ok, wrong_audience: accepted under audience_validation warn, refused, unavailable, canceled).",
	}, []string{"method", "result"})
	tokenCache = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxyauth_token_cache_total",
		Help: "Look-ups in the token cache by result.",
	}, []string{"result"})
	tokenExchanges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxyauth_token_exchange_total",
		Help: "Token exchanges (RFC 8693) by result (ok, refused by the provider, invalid: what it gave is not accepted by the cluster, unavailable).",
	}, []string{"result"})
)

// collectors lists what every configuration registers.
func collectors() []prometheus.Collector {
	return []prometheus.Collector{
		identityRefused, upstreamRejected, requestDuration,
		authentications, tokenCache, tokenExchanges, liveCollector{},
	}
}

// registerMetrics registers the collectors with the registry of a configuration.
func registerMetrics(registry *prometheus.Registry) error {
	if registry == nil {
		return nil
	}
	for _, c := range collectors() {
		var already prometheus.AlreadyRegisteredError
		if err := registry.Register(c); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

// liveCollector reads requests, trust and certificate expiry from the running
// clusters when they are asked for, so that nothing stale is left of a deleted one.
type liveCollector struct{}

var (
	requestsDesc = prometheus.NewDesc("proxyauth_requests_total",
		"Requests by cluster and status code; unknown clusters have empty labels.",
		[]string{"namespace", "cluster", "code"}, nil)
	trustDesc = prometheus.NewDesc("proxyauth_upstream_trust",
		"1 for the current verdict on whether the apiserver honours the proxy.",
		[]string{"namespace", "cluster", "trust"}, nil)
	certExpiryDesc = prometheus.NewDesc("proxyauth_client_cert_expiry_seconds",
		"Seconds until the client certificate in use expires, the front-proxy one or client_cert; negative once it has.",
		[]string{"namespace", "cluster"}, nil)
)

func (liveCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- requestsDesc
	ch <- trustDesc
	ch <- certExpiryDesc
}

func (liveCollector) Collect(ch chan<- prometheus.Metric) {
	unknownRequests.collect(ch, "", "")
	rt := currentRuntime()
	if rt == nil {
		return
	}
	now := time.Now()
	for key, c := range rt.clusters() {
		c.requests.collect(ch, key.Namespace, key.Name)
		// A replica that does not lead asks once, and its word gets old (TRUST-1).
		if trust := c.trust().Told(now); trust != "" {
			ch <- prometheus.MustNewConstMetric(trustDesc, prometheus.GaugeValue, 1, key.Namespace, key.Name, string(trust))
		}
		// In preparation the front-proxy certificate is what one wants to know
		// of; the other one is told in the status.
		if cert := cmp.Or(c.spec.FrontProxy, c.spec.ClientCert); cert != nil {
			ch <- prometheus.MustNewConstMetric(certExpiryDesc, prometheus.GaugeValue,
				cert.Leaf.NotAfter.Sub(now).Seconds(), key.Namespace, key.Name)
		}
	}
}
