package scale

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	objects   = 1000
	targets   = 4
	namespace = "team-a"
	prefix    = "proxyauth:"
)

// What is measured has an aim, which is printed, and a limit. What does not
// depend on how busy the machine is has the aim for a limit; what is measured
// by the clock is given twice the time.
const (
	serveAim, serveLimit   = 10 * time.Second, 20 * time.Second
	changeAim, changeLimit = time.Second, 2 * time.Second
	writesAim, writesLimit = 1.0, 1.05
	memoryLimit            = 300 // MB at the most
)

// fleet is a hub with objects for a few apiservers, half of them in FrontProxy.
type fleet struct {
	*hub.Hub
	idp     *oidc.Provider
	targets []*rawserver.Server
	objects dynamic.NamespaceableResourceInterface
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{Hub: hub.Start(t, kube.Options{}), idp: oidc.Start(t, oidc.Options{})}
	for range targets {
		f.targets = append(f.targets, rawserver.Start(t, rawserver.Options{}))
	}
	client, err := dynamic.NewForConfig(f.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	f.objects = client.Resource(v1.SchemeGroupVersionResource)
	core, err := corev1client.NewForConfig(f.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	for i := range objects {
		group.Go(func() error {
			target := f.targets[i%len(f.targets)]
			object := proxy.Cluster(namespace, name(i), target.URL, target.ServerCA)
			object.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{proxy.Authenticator(f.idp)}}
			if i%2 == 1 {
				object = proxy.FrontProxyCluster(namespace, name(i), target.URL, target.ServerCA, prefix, proxy.Authenticator(f.idp))
				secret := proxy.FrontProxySecret(namespace, name(i), target.URL, target.FrontProxy(1))
				if _, err := core.Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if err != nil {
				return err
			}
			_, err = f.objects.Namespace(namespace).Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return f
}

func name(i int) string { return fmt.Sprintf("cluster-%d", i) }

// A thousand objects: measured and printed.
func TestAThousandObjects(t *testing.T) {
	f := newFleet(t)
	token := f.idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(time.Hour).Unix()})
	if _, err := proxy.Binary(t.Context()); err != nil {
		t.Fatal(err) // building it is no part of its start
	}

	start := time.Now()
	px := proxy.Start(t, proxy.Options{Hub: f.Kubeconfig, LogLevel: "INFO"})
	client := px.Client("h2")
	ask := func(i int) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.ClusterURL(namespace, name(i))+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	f.Eventually(t, "it serves", func() bool { return ask(0) == http.StatusOK && ask(objects-1) == http.StatusOK })
	serving := time.Since(start)
	f.Eventually(t, "readyz", func() bool {
		resp, err := http.Get(px.Health + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	measured(t, "from start to serving", serving, serveAim, serveLimit)
	t.Logf("for which it used %v of CPU time", cpuTime(t, px.PID()))

	// The worst time for a change: every status is being written.
	measured(t, "a change while all statuses are written", f.change(t, ask, 7), changeAim, changeLimit)
	f.settled(t)
	t.Logf("every status is right %v after the start", time.Since(start).Round(time.Millisecond))
	measured(t, "a change", f.change(t, ask, 8), changeAim, changeLimit)

	time.Sleep(5 * time.Second) // whatever else would be written
	// Two changes were written besides.
	perObject := float64(f.StatusWrites(t, "")-2) / objects
	t.Logf("%.3f status writes an object, aim %.0f", perObject, writesAim)
	if perObject > writesLimit {
		t.Errorf("%.3f status writes an object, at most %.2f", perObject, writesLimit)
	}
	t.Logf("%v of CPU time in all", cpuTime(t, px.PID()))
	now, peak := memory(t, px.PID())
	t.Logf("%d MB of memory now, %d MB at the most, aim %d MB", now, peak, memoryLimit)
	if peak > memoryLimit {
		t.Errorf("%d MB of memory, want %d at the most", peak, memoryLimit)
	}
	f.MustNotHaveBeenForbidden(t)
}

// change closes one cluster and says how long that took to take effect.
func (f *fleet) change(t *testing.T, ask func(int) int, i int) time.Duration {
	t.Helper()
	f.Patch(t, namespace, v1.Resource, name(i), `{"spec":{"enabled":false}}`)
	start := time.Now()
	for ask(i) != http.StatusNotFound {
		if time.Since(start) > time.Minute {
			t.Fatal("a change has no effect")
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(start)
}

// settled waits until every object has the status that it must have.
func (f *fleet) settled(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		list, err := f.objects.Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		right := 0
		for i := range list.Items {
			object := new(v1.ProxyKubeApi)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, object); err != nil {
				t.Fatal(err)
			}
			if s := object.Status; s != nil && s.ObservedGeneration == object.Generation {
				ready := hub.Condition(s, "Ready")
				if object.Spec.EnabledOrDefault() && ready == "True/Serving" && hub.Condition(s, "Reachable") == "True/Answered" ||
					!object.Spec.EnabledOrDefault() && ready == "False/Disabled" {
					right++
				}
			}
		}
		if right == objects {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d statuses are right", right)
		}
		time.Sleep(2 * time.Second)
	}
}

func measured(t *testing.T, what string, took, aim, limit time.Duration) {
	t.Helper()
	t.Logf("%s: %v, aim %v", what, took.Round(time.Millisecond), aim)
	if took > limit {
		t.Errorf("%s took %v, at most %v", what, took, limit)
	}
}

var residentLine = regexp.MustCompile(`(?s)VmHWM:\s+(\d+) kB.*VmRSS:\s+(\d+) kB`)

// memory is what a process holds, and the most it has held, in MB.
func memory(t *testing.T, pid int) (now, peak int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := residentLine.FindSubmatch(status)
	if found == nil {
		t.Fatalf("no memory of process %d", pid)
	}
	mb := func(kib []byte) int {
		n, err := strconv.Atoi(string(bytes.TrimSpace(kib)))
		if err != nil {
			t.Fatal(err)
		}
		return n / 1024
	}
	return mb(found[2]), mb(found[1])
}

// cpuTime is what a process has used, which says more than the clock on a busy
// machine (proc_pid_stat(5): utime and stime, in hundredths of a second).
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var total time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(string(field))
		if err != nil {
			t.Fatal(err)
		}
		total += time.Duration(ticks) * 10 * time.Millisecond
	}
	return total
}
