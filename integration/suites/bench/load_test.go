package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The shape of the load: kubectl and controllers keep one connection each, on
// HTTP/2 with several requests in flight.
const (
	h1Connections = 16
	h2Connections = 4
	h2Streams     = 4
)

// load is the clients of one server over one protocol. They keep their
// connections from round to round.
type load struct {
	server  *server
	token   string
	clients []*http.Client
	streams int
}

func newLoad(s *server, protocol, token string) *load {
	l := &load{server: s, token: token, streams: 1}
	connections := h1Connections
	if protocol == "h2" {
		connections, l.streams = h2Connections, h2Streams
	}
	for range connections {
		l.clients = append(l.clients, s.Client(protocol))
	}
	return l
}

func (l *load) close() {
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
}

// run sends requests, as fast as they are answered, until enough were sent or
// ctx ends. It returns how long each took.
func (l *load) run(ctx context.Context, requests int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg     sync.WaitGroup
		left   atomic.Int64
		mu     sync.Mutex
		timing []time.Duration
	)
	left.Store(int64(requests))
	for _, client := range l.clients {
		for range l.streams {
			wg.Go(func() {
				own := []time.Duration(nil)
				for left.Add(-1) >= 0 && ctx.Err() == nil {
					start := time.Now()
					if err := l.send(ctx, client); err != nil {
						cancel(err)
						return
					}
					own = append(own, time.Since(start))
				}
				mu.Lock()
				defer mu.Unlock()
				timing = append(timing, own...)
			})
		}
	}
	wg.Wait()
	return timing, context.Cause(ctx)
}

// send is one request as kubectl sends it.
func (l *load) send(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.server.url, nil)
	if err != nil {
		return err
	}
	req.Header = http.Header{
		"Accept":          {"application/json"},
		"Accept-Encoding": {"gzip"},
		"Authorization":   {"Bearer " + l.token},
		"User-Agent":      {"kubectl/v1.37.2 (linux/amd64) kubernetes/abcdef0"},
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || n < answerSize) {
		err = fmt.Errorf("%s answered %s with %d bytes", l.server.name, resp.Status, n)
	}
	return err
}

// sample is one round of one server.
type sample struct {
	cpu     float64 // µs a request
	timing  []time.Duration
	allocs  float64 // a request
	bytes   float64 // a request
	elapsed time.Duration
}

func (l *load) measure(b *testing.B, requests int) sample {
	b.Helper()
	memory := l.server.memory(b)
	before := cpuTime(b, l.server.PID())
	start := time.Now()
	timing, err := l.run(b.Context(), requests)
	if err != nil {
		b.Fatalf("loading %s: %v", l.server.name, err)
	}
	elapsed := time.Since(start)
	used := cpuTime(b, l.server.PID()) - before
	after := l.server.memory(b)
	n := float64(requests)
	return sample{
		cpu:     float64(used.Nanoseconds()) / 1000 / n,
		timing:  timing,
		allocs:  float64(after.Mallocs-memory.Mallocs) / n,
		bytes:   float64(after.TotalAlloc-memory.TotalAlloc) / n,
		elapsed: elapsed,
	}
}

// cpuTime is what a process has used so far, user and system time of all its
// threads: clock_getcpuclockid(3), which counts nanoseconds where /proc has
// ticks of 10 ms.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	const cpuclockSched = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuclockSched), &t); err != nil {
		b.Fatalf("reading the CPU time of process %d: %v", pid, err)
	}
	return time.Duration(t.Nano())
}

// median of some values; quantile(…, 0.5).
func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile of some values, which it sorts.
func quantile[T float64 | time.Duration](values []T, q float64) T {
	slices.Sort(values)
	return values[min(int(float64(len(values))*q), len(values)-1)]
}

func writeFile(b *testing.B, dir, name string, content []byte) string {
	b.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, content, 0o644); err != nil {
		b.Error(err)
	}
	return file
}
