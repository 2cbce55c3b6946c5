package caddymodule

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

const (
	// probeLimit is what one probe may take.
	probeLimit = 10 * time.Second
	// probesAtOnce bounds how many apiservers are asked at a time.
	probesAtOnce = 16
)

// prober asks on a schedule whether each apiserver honours the proxy, so that
// an apiserver whose flags change under a running cluster is found out, and
// preparation shows what is missing. The check before the first request over
// a new set does not wait for it (TRUST-3).
type prober struct {
	rt       *runtime
	interval time.Duration
	// soon asks for a round at once, for a set that was never probed.
	soon chan struct{}
}

func newProber(rt *runtime, interval time.Duration) *prober {
	return &prober{rt: rt, interval: interval, soon: make(chan struct{}, 1)}
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) {
	timer := time.NewTimer(p.next())
	defer timer.Stop()
	for {
		all := true
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(p.next())
		case <-p.soon:
			all = false
		}
		p.round(ctx, all)
	}
}

// next is the interval, a tenth shorter or longer: proxies that were started
// together do not ask together.
func (p *prober) next() time.Duration {
	return p.interval + time.Duration((rand.Float64()-0.5)*0.2*float64(p.interval))
}

// round probes all clusters, or those that have no verdict yet.
func (p *prober) round(ctx context.Context, all bool) {
	slots := make(chan struct{}, probesAtOnce)
	var flights sync.WaitGroup
	defer flights.Wait()
	for _, c := range p.rt.clusters() {
		if !c.spec.Probe || c.gate == nil || !all && c.gate.State().Trust != "" {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		flights.Go(func() {
			defer func() { <-slots }()
			p.probe(ctx, c)
		})
	}
}

func (p *prober) probe(ctx context.Context, c *cluster) {
	limited, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	verdict := c.probe(limited)
	if ctx.Err() != nil {
		return // the proxy itself cut the probe short: no verdict
	}
	before := c.trust().Trust
	c.gate.Observe(verdict)
	if verdict.Trust != before {
		p.rt.logger.Info("the apiserver was asked whether it honours the proxy",
			zap.Stringer("cluster", c.spec.Key), zap.String("trust", string(verdict.Trust)), zap.String("message", verdict.Message))
	}
}

// probeSoon has the sets probed at once that were never probed (TRUST-2).
func (p *prober) probeSoon(clusters map[k8swatch.Key]*cluster) {
	for _, c := range clusters {
		if c.spec.Probe && c.gate != nil && c.gate.State().Trust == "" {
			select {
			case p.soon <- struct{}{}:
			default:
			}
			return
		}
	}
}
