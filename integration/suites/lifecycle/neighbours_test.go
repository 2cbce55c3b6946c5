package lifecycle

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// RLD-01, in short. The whole case is TestLongRLD01.
func TestRLD01(t *testing.T) {
	t.Parallel()
	testRLD01(t, 8, 0)
}

// testRLD01 has a stream of every kind open on one cluster while another is
// created, edited and deleted again and again. No stream closes, no event is lost,
// an exec echoes in 500 ms, and what the other cluster took is given back. The
// rounds take at least that time in all.
func testRLD01(t *testing.T, rounds int, during time.Duration) {
	const slow = 500 * time.Millisecond
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")
	streams := openStreams(t, px, "cluster-a")
	echoes := streams[len(responseKinds):]

	var echo time.Duration // the slowest
	group := "nobody"
	round := func() {
		for _, change := range []struct {
			make func()
			code int
		}{
			{func() { px.MustWrite(t, "b.yaml", cluster("cluster-b", up, 1, nil)...) }, 200},
			{func() {
				px.MustWrite(t, "b.yaml", cluster("cluster-b", up, 1, func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = &group })...)
			}, 403},
			{func() {
				if err := px.RemoveManifest("b.yaml"); err != nil {
					t.Fatal(err)
				}
			}, 404},
		} {
			change.make()
			waitCode(t, px, "cluster-b", change.code)
			for _, s := range echoes {
				start := time.Now()
				s.alive(t)
				echo = max(echo, time.Since(start))
			}
			for _, s := range streams {
				if !s.open() {
					t.Fatalf("%s has ended", s)
				}
			}
		}
	}
	round()
	round() // what is made once is there
	goroutines, memory := countGoroutines(t, px, ""), residentMemory(t, px)
	start := time.Now()
	for n := range rounds {
		round()
		time.Sleep(time.Until(start.Add(during * time.Duration(n+1) / time.Duration(rounds))))
	}
	took := time.Since(start)
	allAlive(t, streams)
	eventually(t, "what the other cluster took is given back", 2*patience, func() error {
		if n := countGoroutines(t, px, ""); n > goroutines+3 {
			return fmt.Errorf("%d goroutines, %d before", n, goroutines)
		}
		if kib := residentMemory(t, px); during > 0 && kib > memory*12/10 {
			return fmt.Errorf("%d KiB, %d before", kib, memory)
		}
		return nil
	})
	if echo > slow {
		t.Errorf("the slowest echo took %s", echo)
	}
	t.Logf("%d rounds in %s; the slowest echo took %s; %d KiB before and %d KiB after",
		rounds, took.Round(time.Millisecond), echo.Round(time.Microsecond), memory, residentMemory(t, px))
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// residentMemory is what the proxy holds, in KiB.
func residentMemory(t *testing.T, px *proxy.Proxy) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", px.PID()))
	if err != nil {
		t.Fatal(err)
	}
	found := resident.FindSubmatch(status)
	if found == nil {
		t.Fatal("the kernel does not say what the proxy holds")
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
