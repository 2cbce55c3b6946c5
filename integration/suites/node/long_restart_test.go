//go:build long

package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
)

// testRestart ends the apiserver while streams are open, and starts it again. The
// streams end as they do without a proxy, and then everything works again.
func testRestart(t *testing.T, b *busy) {
	admin := b.node.Kubectl(t)
	admin.MustRun(t, "create", "configmap", "restarted", "--from-literal=when=before")
	watch := []string{"get", "configmap", "restarted", "--watch", `--output=jsonpath={.data.when}{"\n"}`}
	exec := []string{"exec", "-i", streamtest.Pod, "--", "cat"}
	clients := b.clients(t)
	kubectls := map[string]kube.Kubectl{"": admin}
	for _, c := range clients {
		kubectls[c.name] = c.Kubectl
	}
	watches, execs := map[string]*kube.Running{}, map[string]*kube.Running{}
	for name, k := range kubectls {
		watches[name] = k.MustStart(t, watch...)
		watches[name].MustLine(t, "before")
		for _, p := range streamtest.Protocols {
			r := p.With(k).MustStart(t, exec...)
			if _, err := r.Stdin.Write([]byte("before\n")); err != nil {
				t.Fatal(err)
			}
			r.MustLine(t, "before")
			execs[name+"/"+p.Name] = r
		}
	}
	var stores []cache.Store
	for _, c := range clients[:2] {
		stores = append(stores, follow(t, b.core(t, c, "restart-"+c.protocol), "default"))
	}
	holds := func(when string) {
		t.Helper()
		for _, store := range stores {
			mustHold(t, store, when, func() bool {
				object, ok, _ := store.GetByKey("default/restarted")
				return ok && object.(*corev1.ConfigMap).Data["when"] == when
			})
		}
	}
	holds("before")

	b.node.API.Suspend()
	wantWatch := watches[""].MustEnd(t)
	t.Logf("directly a watch ends with %+v", wantWatch)
	for name, r := range watches {
		if got := r.MustEnd(t); got.ExitCode != wantWatch.ExitCode {
			t.Errorf("a watch by %q ended with %+v, directly %+v", name, got, wantWatch)
		}
	}
	for _, p := range streamtest.Protocols {
		want := execs["/"+p.Name].MustEnd(t)
		t.Logf("directly exec over %s ends with %+v", p.Name, want)
		for _, c := range clients {
			if got := execs[c.name+"/"+p.Name].MustEnd(t); got.ExitCode != want.ExitCode {
				t.Errorf("exec over %s by %s ended with %+v, directly %+v", p.Name, c.name, got, want)
			}
		}
	}
	if err := b.node.API.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}

	admin.MustRun(t, "patch", "configmap", "restarted", `--patch={"data":{"when":"after"}}`)
	holds("after")
	for _, c := range clients {
		c.MustStart(t, watch...).MustLine(t, "after")
		for _, p := range streamtest.Protocols {
			p.With(c.Kubectl).MustRun(t, "exec", streamtest.Pod, "--", "true")
		}
	}
}
