package bench

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

var (
	profileDir = flag.String("profile", "", "existing folder for profiles of each process under load")
	rounds     = flag.Int("rounds", 25, "rounds that are measured")
	perRound   = flag.Int("requests", 1200, "requests to each process in a round")
)

// profileTime is how long a profile takes.
const profileTime = 20 * time.Second

// BenchmarkRelay is the cost of a request with a token that was seen before.
func BenchmarkRelay(b *testing.B) {
	f := newFixture(b)
	for _, protocol := range []string{"h1", "h2"} {
		b.Run(protocol, func(b *testing.B) {
			for range b.N {
				f.compare(b, protocol)
			}
		})
	}
}

// compare loads the servers in turn and reports.
func (f *fixture) compare(b *testing.B, protocol string) {
	servers := f.servers()
	samples := map[*server][]sample{}
	var loads []*load
	for _, s := range servers {
		l := newLoad(s, protocol, f.token(oidc.Alice))
		defer l.close()
		loads = append(loads, l)
		l.measure(b, *perRound) // connections, caches, pools
	}
	for round := range *rounds {
		for i := range loads {
			// Another server comes first in each round.
			l := loads[(i+round)%len(loads)]
			samples[l.server] = append(samples[l.server], l.measure(b, *perRound))
		}
	}
	ratio := func(one, other *server) float64 {
		ratios := make([]float64, *rounds)
		for i := range ratios {
			ratios[i] = samples[one][i].cpu / samples[other][i].cpu
		}
		return median(ratios)
	}
	b.ReportMetric(0, "ns/op") // of the whole comparison: says nothing
	b.ReportMetric(ratio(f.proxyauth, f.stock), "ratio")
	b.ReportMetric(ratio(f.bareProxyauth, f.bareStock), "bare-ratio")
	b.ReportMetric(ratio(f.proxyauth, f.bareStock), "audited-ratio")
	b.ReportMetric(float64(*rounds**perRound), "requests")

	var table strings.Builder
	fmt.Fprintf(&table, "%s, %d rounds of %d requests, medians\n", protocol, *rounds, *perRound)
	fmt.Fprintf(&table, "%-16s%12s%12s%12s%10s%10s%12s\n", "", "µs CPU/req", "allocs/req", "bytes/req", "p50", "p99", "requests/s")
	for _, s := range servers {
		f.row(b, &table, s, samples[s])
	}
	b.Log("\n" + table.String())
	if *profileDir != "" {
		for _, l := range loads {
			l.profiled(b, protocol)
		}
	}
}

// row is one server in the table.
func (f *fixture) row(b *testing.B, table *strings.Builder, s *server, samples []sample) {
	column := func(of func(sample) float64) float64 {
		values := make([]float64, len(samples))
		for i := range samples {
			values[i] = of(samples[i])
		}
		return median(values)
	}
	var timing []time.Duration
	for _, sample := range samples {
		timing = append(timing, sample.timing...)
	}
	cpu := column(func(s sample) float64 { return s.cpu })
	fmt.Fprintf(table, "%-16s%12.1f%12.1f%12.0f%10s%10s%12.0f\n", s.name, cpu,
		column(func(s sample) float64 { return s.allocs }),
		column(func(s sample) float64 { return s.bytes }),
		quantile(timing, 0.5).Round(10*time.Microsecond), quantile(timing, 0.99).Round(10*time.Microsecond),
		column(func(s sample) float64 { return float64(len(s.timing)) / s.elapsed.Seconds() }))
	b.ReportMetric(cpu, s.name+"-µs/req")
}

// profiled takes a CPU profile of a server under load.
func (l *load) profiled(b *testing.B, protocol string) {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = l.run(ctx, 1<<40)
	}()
	l.server.profile(b, *profileDir, protocol, profileTime)
	cancel()
	<-ended
}
