package trust

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// roundLimit is what the probes of one cluster may take. They run at the same
// time.
const roundLimit = 10 * time.Second

// Prober asks each apiserver on a schedule whether it honours the proxy
// (TRUST-1), what it takes client_cert for (CERT-9) and whether it answers
// (REC-6). So it notices an apiserver whose flags change under a running
// cluster, and preparation shows what is missing. The check before the first
// request over a new certificate does not wait for it (TRUST-3).
type Prober struct {
	schedule *schedule
	logger   *zap.Logger
	changed  func(k8swatch.Key)
}

// NewProber makes a Prober that asks nothing until it leads. changed is called
// when an apiserver begins or ceases to answer, and at the end of each round,
// after which the time of the last probe may have to be written (REC-4). It must
// not wait.
func NewProber(interval time.Duration, logger *zap.Logger, changed func(k8swatch.Key)) *Prober {
	p := &Prober{logger: logger, changed: changed}
	p.schedule = newSchedule(interval, p.round)
	return p
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) { p.schedule.run(ctx) }

// Follow replaces the clusters to probe. New trust keys are probed at once
// (TRUST-2).
func (p *Prober) Follow(clusters map[k8swatch.Key]*Trust) { p.schedule.set(clusters) }

// Lead says whether this process probes on schedule. A new leader asks every
// apiserver within seconds (REC-1). The checks of requests (TRUST-3) do not
// depend on it.
func (p *Prober) Lead(leads bool) { p.schedule.lead(leads) }

// Leads reports what Lead was last told.
func (p *Prober) Leads() bool { return p.schedule.isLeading() }

// round asks the apiserver of one cluster everything.
func (p *Prober) round(ctx context.Context, key k8swatch.Key, t *Trust) {
	limited, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	var questions sync.WaitGroup
	questions.Go(func() {
		if reached := t.probeReach(limited); ctx.Err() == nil {
			p.reached(key, t, reached)
		}
	})
	if t.gateIsCurrent() {
		questions.Go(func() {
			before := t.frontProxy.State().Verdict.Kind()
			// A probe that the proxy itself cut short is no verdict.
			if v := t.probe(limited); ctx.Err() == nil {
				t.frontProxy.Observe(v)
				p.log(key, "the apiserver was asked whether it honours the proxy", before, v.Kind(), v.Message)
			}
		})
	}
	if t.presentsClientCert() {
		questions.Go(func() {
			before := t.clientCert.State().Verdict.Kind()
			if v := t.probeClientCert(limited); ctx.Err() == nil {
				t.clientCert.Observe(v)
				p.log(key, "the apiserver was asked what it takes client_cert for", before, v.Kind(), v.Message)
			}
		})
	}
	questions.Wait()
	if ctx.Err() == nil {
		p.changed(key)
	}
}

func (p *Prober) reached(key k8swatch.Key, t *Trust, reached k8swatch.Condition) {
	before := ""
	if last := t.reach.last.Swap(&reached); last != nil {
		before = last.Reason
	}
	p.log(key, "the apiserver was asked whether it answers", before, reached.Reason, reached.Message)
	if reached.Reason != before {
		p.changed(key)
	}
}

// log writes a verdict that differs from the one before.
func (p *Prober) log(key k8swatch.Key, text, before, verdict, message string) {
	if before == verdict {
		return
	}
	p.logger.Info(text, zap.Stringer("cluster", key), zap.String("verdict", verdict), zap.String("message", message))
}
