package lifecycle

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// exitSlack is what the end of the process may take beyond its own times, on a
// machine that does other things too.
const exitSlack = 5 * time.Second

// probe asks /livez or /readyz; no answer is an error.
func probe(px *proxy.Proxy, path string) (int, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	res, err := client.Get(px.Health + path)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, nil
}

// exited waits for the end of the process and returns when that was.
func exited(t *testing.T, px *proxy.Proxy, within time.Duration) time.Time {
	t.Helper()
	select {
	case <-px.Done():
	case <-time.After(within):
		t.Fatalf("the process has not ended after %s", within)
	}
	at := time.Now()
	if code := px.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	return at
}

func terminate(t *testing.T, px *proxy.Proxy) time.Time {
	t.Helper()
	start := time.Now()
	if err := px.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return start
}

// STREAM-2, SIG-5: readiness fails at once, the listener stays for shutdown_delay,
// then watches end cleanly, upgrades at the latest when grace_period is over.
// Streams of an earlier configuration are treated like those of this one.
func TestSTREAM2(t *testing.T) {
	t.Parallel()
	const delay, grace = 6 * time.Second, 8 * time.Second
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{
		ShutdownDelay: delay, GracePeriod: grace,
		Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)},
	})
	px.MustServe(t, namespace, "cluster-a")
	streams := openStreams(t, px, "cluster-a")
	reload(t, px, func(o *proxy.Options) { o.Settings = "token_cache_ttl 5s" })
	streams = append(streams, openStreams(t, px, "cluster-a")...)
	var watches, upgrades []stream
	for _, s := range streams {
		if slices.Contains(responseKinds, s.String()) {
			watches = append(watches, s)
		} else {
			upgrades = append(upgrades, s)
		}
	}
	// Responses that are no streams: one ends by itself in the grace period,
	// one does not.
	done := []*reading{
		openWatchH1(t, px, target("cluster-a", logPath+"10s"), "a response of 10 s on HTTP/1.1"),
		openWatchH2(t, px, target("cluster-a", logPath+"10s"), "a response of 10 s on HTTP/2"),
	}
	cut := []*reading{
		openWatchH1(t, px, target("cluster-a", logPath+"1h"), "an endless response on HTTP/1.1"),
		openWatchH2(t, px, target("cluster-a", logPath+"1h"), "an endless response on HTTP/2"),
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if code, err := probe(px, path); err != nil || code != http.StatusOK {
			t.Errorf("%s before the signal: %d, %v", path, code, err)
		}
	}

	start := terminate(t, px)
	unready := eventually(t, "readiness fails", delay, func() error {
		code, err := probe(px, "/readyz")
		if err != nil {
			return err
		}
		if code != http.StatusServiceUnavailable {
			return fmt.Errorf("it is %d", code)
		}
		return nil
	})
	if code, err := probe(px, "/livez"); err != nil || code != http.StatusOK {
		t.Errorf("/livez while it stops: %d, %v", code, err)
	}
	if a := get(t, px, "cluster-a"); a.Code != http.StatusOK {
		t.Errorf("a new request while the listener stays: %d %s", a.Code, a.Body)
	}
	late := openStreams(t, px, "cluster-a", responseKinds...)
	allAlive(t, streams)
	if since := time.Since(start); since > delay {
		t.Fatalf("the checks took %s: this machine is too slow for a delay of %s", since, delay)
	}
	watches = append(watches, late...)
	allEnded(t, watches, time.Until(start.Add(delay+exitSlack)))
	watchesEnded := time.Since(start)
	for _, w := range watches {
		if at := w.(*reading).at.Sub(start); at < delay-time.Second {
			t.Errorf("%s ended after %s, before the listener closed", w, at)
		}
	}
	allAlive(t, upgrades)
	if code, err := probe(px, "/readyz"); err == nil && code == http.StatusOK {
		t.Error("ready without a listener")
	}
	for _, r := range done {
		mustComplete(t, r, time.Until(start.Add(delay+grace)))
	}
	allEnded(t, upgrades, time.Until(start.Add(delay+grace+exitSlack)))
	upgradesEnded := time.Since(start)
	if upgradesEnded < delay+grace-time.Second {
		t.Errorf("upgrades ended after %s, although they may go on for %s", upgradesEnded, delay+grace)
	}
	for _, r := range cut {
		mustBreak(t, r, exitSlack)
	}
	end := exited(t, px, exitSlack).Sub(start)
	t.Logf("after the signal: not ready %s, watches ended %s, upgrades %s, process %s",
		unready.Round(time.Millisecond), watchesEnded.Round(time.Millisecond), upgradesEnded.Round(time.Millisecond), end.Round(time.Millisecond))
}

// STREAM-2: the end waits for no stream that does not exist, or not any more.
func TestSTREAM2Fast(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	for _, tc := range []struct {
		name  string
		kinds []string
		// leave says that clients close their streams after the signal.
		leave bool
	}{
		{"without streams", nil, false},
		{"with watches", responseKinds, false},
		{"with upgrades that clients close", upgradeKinds, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const grace = 30 * time.Second
			px := proxy.Start(t, proxy.Options{GracePeriod: grace, Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
			px.MustServe(t, namespace, "cluster-a")
			waitCode(t, px, "cluster-a", 200)
			var streams []stream
			if tc.kinds != nil {
				streams = openStreams(t, px, "cluster-a", tc.kinds...)
			}
			start := terminate(t, px)
			if tc.leave {
				allAlive(t, streams)
				closeAll(streams)
			} else {
				allEnded(t, streams, exitSlack)
			}
			t.Logf("ended after %s", exited(t, px, exitSlack).Sub(start).Round(time.Millisecond))
		})
	}
}

// STREAM-2: watches end cleanly however many there are, the last chunk of each
// is on its way before the process is gone, and a configuration that is gone
// makes no difference.
func TestSTREAM2ManyWatches(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	for _, reloads := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d reloads", reloads), func(t *testing.T) {
			// After the reload the old servers wait only a moment, so nothing
			// but the registry of streams knows of theirs.
			px := proxy.Start(t, proxy.Options{LogLevel: "INFO", GracePeriod: time.Second, Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
			px.MustServe(t, namespace, "cluster-a")
			watches := openManyWatches(t, px, 80, 4, 80)
			for range reloads {
				reload(t, px, func(o *proxy.Options) { o.GracePeriod = 20 * time.Second })
				waitLog(t, px, "server graceful shutdown 1s timeout")
			}
			watches[0].alive(t)
			start := terminate(t, px)
			allEnded(t, watches, 20*time.Second)
			exited(t, px, exitSlack)
			t.Logf("%d watches and the process ended within %s", len(watches), time.Since(start).Round(time.Millisecond))
		})
	}
}

// waitLog waits for a line with that error.
func waitLog(t *testing.T, px *proxy.Proxy, text string) {
	t.Helper()
	eventually(t, "the log says "+text, patience, func() error {
		entries, err := px.Log()
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Text("error") == text {
				return nil
			}
		}
		return errors.New("no such line")
	})
}

// STREAM-2: `caddy stop` ends the process like a signal.
func TestSTREAM2CaddyStop(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{GracePeriod: 3 * time.Second, Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")
	streams := openStreams(t, px, "cluster-a")
	stopped := make(chan error, 1)
	go func() {
		r, err := px.Command(t.Context(), "stop", "--address", px.Admin)
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
		}
		stopped <- err
	}()
	allEnded(t, streams, 3*time.Second+exitSlack)
	exited(t, px, exitSlack)
	if err := <-stopped; err != nil {
		t.Errorf("caddy stop: %v", err)
	}
}
