package migration

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// headerFlags begins the flags that are about front proxies.
const headerFlags = "--requestheader-"

// flagsOfTheAPIServer: flags that change under a cluster that was Trusted, in
// preparation and in FrontProxy, show within one round of probes (TRUST-1).
// Requests during a restart would fail by the apiserver's fault: none is sent
// then.
func flagsOfTheAPIServer(t *testing.T, w *world) {
	preparing, inForce := key("team-a", "staging"), key("team-b", "staging")
	w.hub.Apply(t, w.prepared(preparing, w.flags, v1.ModePassthrough), w.prepared(inForce, w.flags, v1.ModeFrontProxy),
		w.secret(preparing, w.flags, w.good), w.secret(inForce, w.flags, w.good))
	w.prepares(t, preparing, time.Time{})
	w.serves(t, inForce, time.Time{})
	users := w.newLoad(t, preparing)
	users.more(t, idpName)

	right := w.flags.DropArgs(headerFlags)
	// restart starts the apiserver with other flags: after since, and it is
	// ready by back. The schedule may ask it before the test knows that.
	restart := func(flags []string) (since, back time.Time) {
		t.Helper()
		users.pause()
		defer users.resume()
		since = time.Now()
		w.flags.Suspend()
		w.flags.DropArgs(headerFlags)
		if err := w.flags.Resume(w.ctx, flags...); err != nil {
			t.Fatal(err)
		}
		back = time.Now()
		w.known(t, w.flags)
		return since, back
	}
	for i, tt := range []struct {
		name, flag   string
		instead      []string
		reason, text string
		trust        v1.Trust
	}{
		{"no group headers", "--requestheader-group-headers", nil, notHonoured, "without its group (--requestheader-group-headers)", v1.TrustNotHonoured},
		{"CN not in allowed-names", "--requestheader-allowed-names", []string{"--requestheader-allowed-names=" + kube.AggregatorName}, notTrusted, "401", v1.TrustRejected},
		{"no extra headers", "--requestheader-extra-headers-prefix", nil, notHonoured, "without its extra (--requestheader-extra-headers-prefix)", v1.TrustNotHonoured},
	} {
		others := slices.DeleteFunc(slices.Clone(right), func(arg string) bool { return strings.HasPrefix(arg, tt.flag) })
		since, back := restart(append(others, tt.instead...))
		told := []time.Time{
			w.stopped(t, preparing, since, tt.reason, tt.text, tt.trust),
			w.refused(t, inForce, since, tt.reason, tt.text, tt.trust),
			w.event(t, inForce, since, corev1.EventTypeWarning, tt.reason, tt.text),
		}
		if i == 0 { // it stays True after that, whatever it says
			told = append(told, w.event(t, preparing, since, corev1.EventTypeWarning, "FrontProxyNotReady", ""))
		}
		t.Log(tt.name)
		within(t, back, told)
		users.more(t, idpName)
	}
	since, _ := restart(right)
	w.prepares(t, preparing, since)
	w.serves(t, inForce, since)
	if name := w.whoami(t, inForce); name != prefixedName {
		t.Errorf("whoami %q", name)
	}
	users.stop(t)
}
