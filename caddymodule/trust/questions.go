package trust

import (
	"context"
	"sync/atomic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// Apiserver is the apiserver of a cluster, to be asked over these connections.
// answers limits what is read of its answers.
func Apiserver(spec *k8swatch.Cluster, over *upstream.Pair, answers *boundedjson.Reader) probe.Apiserver {
	return probe.Apiserver{Transport: over, Base: "https://" + spec.Target.Host + spec.Target.BasePath, Answers: answers}
}

// probeScope is what a probe is about: its verdicts hold while none of it changes.
type probeScope struct{ endpoint, frontProxy, clientCert string }

// probeScope returns what there is to ask the apiserver now; ok is false for
// nothing.
func (t *Trust) probeScope() (s probeScope, ok bool) {
	if !t.spec.TargetKnown || t.reach == nil {
		return s, false
	}
	s.endpoint = t.reach.endpoint
	if t.spec.Probe {
		s.frontProxy = t.frontProxyKey
	}
	if t.presentsClientCert() {
		s.clientCert = t.clientCertKey
	}
	return s, true
}

// probe asks the apiserver which user it sees behind the front-proxy
// certificate and asserted headers.
func (t *Trust) probe(ctx context.Context) frontProxyVerdict {
	over := t.requestPair
	if t.probePair != nil {
		over = t.probePair
	}
	if over == nil {
		return frontProxyVerdict{Trust: v1.TrustUnknown, Message: "there is no certificate to present"}
	}
	apiserver := Apiserver(t.spec, over, t.answers)
	if t.spec.FrontProxy != nil {
		apiserver.Presented = t.spec.FrontProxy.Leaf
	}
	v := apiserver.CheckTrust(ctx, t.settings)
	if v.Effect() != probe.Inconclusive {
		over.MarkProbed()
	}
	return v
}

// probeClientCert asks the apiserver which user it takes client_cert for. It
// asks over the connections of requests: what a certificate means is decided for
// a connection, and these present no other certificate.
func (t *Trust) probeClientCert(ctx context.Context) clientCertVerdict {
	v := Apiserver(t.spec, t.requestPair, t.answers).CheckClientCert(ctx)
	if v.Effect() != probe.Inconclusive {
		t.requestPair.MarkProbed()
	}
	return v
}

// probeReach asks the apiserver for any answer, without a credential. Each time
// it opens a connection of its own: TLS is part of the question.
func (t *Trust) probeReach(ctx context.Context) k8swatch.Condition {
	var asked atomic.Bool
	c := connection(t.spec)
	c.AskedForCertificate = func() { asked.Store(true) }
	pair := upstream.New(c)
	defer pair.Retire()
	return Apiserver(t.spec, pair, nil).Reach(ctx, &asked)
}

// ObserveFrontProxy takes in a verdict on the front-proxy certificate.
func (t *Trust) ObserveFrontProxy(v probe.Verdict) { t.frontProxy.Observe(v) }

// ObserveClientCert takes in a verdict on client_cert.
func (t *Trust) ObserveClientCert(v probe.CertVerdict) { t.clientCert.Observe(v) }
