package caddymodule

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// probeLimit is what one round of one cluster may take; its questions are asked
// at the same time.
const probeLimit = 10 * time.Second

// prober asks each apiserver on a schedule of its own whether it honours the
// proxy (TRUST-1), what it takes client_cert for (CERT-9) and whether it answers
// (REC-6), so that an apiserver whose flags change under a running cluster is
// found out, and preparation shows what is missing. The check before the first
// request over a new set does not wait for it (TRUST-3).
type prober struct {
	schedule *schedule
	logger   *zap.Logger
	// changed is told of each verdict of another kind than the one before,
	// whoever reached it, and of the end of each round, after which the time
	// of the last probe may have to be written (REC-4). It must not wait, and
	// is set before run; nil is nobody.
	changed func(k8swatch.Key)
}

func newProber(rt *runtime, interval time.Duration) *prober {
	p := &prober{logger: rt.logger}
	p.schedule = newSchedule(interval, rt.load, p.round)
	return p
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) { p.schedule.run(ctx) }

// wakeUp has a new snapshot looked at, and new sets probed at once (TRUST-2).
func (p *prober) wakeUp() { p.schedule.poke() }

// lead says whether this process leads: only the leader probes on schedule, and
// a new one asks every apiserver within seconds (REC-1). It leads unless told
// otherwise. What requests have checked (TRUST-3) does not depend on it.
func (p *prober) lead(leads bool) { p.schedule.lead(leads) }

func (p *prober) tell(key k8swatch.Key) {
	if p.changed != nil {
		p.changed(key)
	}
}

// round asks the apiserver of one cluster everything, and reports whether it
// answered.
func (p *prober) round(ctx context.Context, c *cluster) (answered bool) {
	limited, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	var questions sync.WaitGroup
	questions.Go(func() {
		reached := c.reachOut(limited)
		answered = reached.Reason == k8swatch.ReasonAnswered
		if ctx.Err() == nil {
			p.tellReach(c, reached)
		}
	})
	if c.spec.Probe && c.gate != nil {
		questions.Go(func() {
			before := c.gate.State().Verdict.Kind()
			// The proxy itself may have cut the probe short: no verdict then.
			if v := c.probe(limited); ctx.Err() == nil {
				c.gate.Observe(v)
				p.log(c, "the apiserver was asked whether it honours the proxy", before, v.Kind(), v.Message)
			}
		})
	}
	if c.asksAboutClientCert() {
		questions.Go(func() {
			before := c.certGate.State().Verdict.Kind()
			if v := c.checkClientCert(limited); ctx.Err() == nil {
				c.certGate.Observe(v)
				p.log(c, "the apiserver was asked what it takes client_cert for", before, v.Kind(), v.Message)
			}
		})
	}
	questions.Wait()
	if ctx.Err() == nil {
		p.tell(c.spec.Key)
	}
	return answered
}

func (p *prober) tellReach(c *cluster, reached k8swatch.Condition) {
	before := ""
	if last := c.reach.last.Swap(&reached); last != nil {
		before = last.Reason
	}
	p.log(c, "the apiserver was asked whether it answers", before, reached.Reason, reached.Message)
	if reached.Reason != before {
		p.tell(c.spec.Key)
	}
}

// log writes a verdict that is another than the one before.
func (p *prober) log(c *cluster, text, before, verdict, message string) {
	if before == verdict {
		return
	}
	p.logger.Info(text, zap.Stringer("cluster", c.spec.Key), zap.String("verdict", verdict), zap.String("message", message))
}

// asksAboutClientCert reports whether the relay presents a client_cert.
func (c *cluster) asksAboutClientCert() bool {
	return c.spec.ClientCert != nil && c.certGate != nil && c.pair != nil
}

// subject is what a round is about.
type subject struct{ endpoint, set, credential string }

// subject returns what there is to ask about the cluster now, if anything.
func (c *cluster) subject() (s subject, ok bool) {
	if !c.spec.TargetKnown || c.reach == nil {
		return s, false
	}
	s.endpoint = c.reach.endpoint
	if c.spec.Probe {
		s.set = c.gateSet
	}
	if c.asksAboutClientCert() {
		s.credential = c.certSet
	}
	return s, true
}
