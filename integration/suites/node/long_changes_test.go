//go:build long

package node

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// TestLongChanges has kubectl hold a stream of every protocol to a real pod, and
// changes what STREAM-1, STREAM-2 and RLD-01 name: what must leave streams alone,
// what must end them, and what is left of them.
func TestLongChanges(t *testing.T) {
	t.Parallel()
	b := startBusy(t)
	streamtest.Apply(t, b.node)
	c := &changes{busy: b, admin: b.node.Kubectl(t)}
	c.open(t, time.Hour).end(t) // what is made once is there
	base := c.goroutines(t)
	t.Run("leave", func(t *testing.T) { c.testLeave(t) })
	for _, ending := range c.endings() {
		t.Run(ending.name, func(t *testing.T) { c.testEnding(t, ending) })
	}
	waitFor(t, "what the streams took is given back", func() error {
		if n := c.goroutines(t); n > base+5 {
			return fmt.Errorf("%d goroutines, %d before", n, base)
		}
		return nil
	})
	t.Run("SIGTERM", func(t *testing.T) { c.testTermination(t) })
}

// changes is a cluster that changes under open streams.
type changes struct {
	*busy
	admin kube.Kubectl
	marks int
}

// front writes the objects of the cluster, changed.
func (c *changes) front(t *testing.T, change func(*v1.ProxyKubeApi)) {
	t.Helper()
	c.px.MustWrite(t, "front.yaml", c.object("front", change), c.secret("front"))
}

func (c *changes) object(name string, change func(*v1.ProxyKubeApi)) *v1.ProxyKubeApi {
	o := proxy.FrontProxyCluster(tenant, name, c.node.API.URL, c.node.API.PKI.ServerCA, prefix, proxy.Authenticator(c.idp))
	if change != nil {
		change(o)
	}
	return o
}

// secret has a new certificate each time.
func (c *changes) secret(name string) any {
	return proxy.FrontProxySecret(tenant, name, c.node.API.URL, pki.Must(c.node.API.FrontProxy()))
}

// testLeave makes the changes that leave streams alone, the end of the token last.
func (c *changes) testLeave(t *testing.T) {
	const lifetime = 3 * time.Minute
	expires := time.Now().Add(lifetime)
	streams := c.open(t, lifetime)
	defer streams.end(t)
	no := "nobody"
	for _, change := range []struct {
		name string
		make func(t *testing.T)
	}{
		{"another cluster, 50 times in a minute (RLD-01)", func(t *testing.T) { c.neighbour(t, streams) }},
		{"renewed certificate", func(t *testing.T) { c.front(t, nil) }},
		{"another group", func(t *testing.T) { c.front(t, func(o *v1.ProxyKubeApi) { o.Spec.ProxyGroup = &no }) }},
		{"Ready=False", func(t *testing.T) {
			c.px.MustWrite(t, "front.yaml", c.object("front", nil))
			c.px.MustCluster(t, tenant, "front", func(s *proxy.ClusterStatus) bool { return s.Ready() == "False/ClientCertMissing" })
		}},
		{"Ready=True", func(t *testing.T) {
			c.front(t, nil)
			c.px.MustServe(t, tenant, "front")
		}},
		{"reload", func(t *testing.T) { c.reload(t, "") }},
		{"reload with another option", func(t *testing.T) { c.reload(t, "token_cache_ttl 5s") }},
		{"end of the token", func(*testing.T) { time.Sleep(time.Until(expires.Add(time.Second))) }},
	} {
		t.Run(change.name, func(t *testing.T) {
			change.make(t)
			streams.alive(t, c.mark(t))
		})
	}
}

func (c *changes) reload(t *testing.T, settings string) {
	t.Helper()
	if err := c.px.Reload(t.Context(), func(o *proxy.Options) { o.Settings = settings }); err != nil {
		t.Fatal(err)
	}
}

// neighbour creates, edits and deletes another cluster 50 times in 60 s.
func (c *changes) neighbour(t *testing.T, streams openStreams) {
	const rounds, during, slow = 50, time.Minute, 500 * time.Millisecond
	memory, start := residentMemory(t, c.px.PID()), time.Now()
	var echoes []time.Duration
	for n := range rounds {
		c.px.MustWrite(t, "other.yaml", c.object("other", nil), c.secret("other"))
		c.px.MustServe(t, tenant, "other")
		c.px.MustWrite(t, "other.yaml", c.object("other", func(o *v1.ProxyKubeApi) { o.Spec.TLSServerName = "localhost" }), c.secret("other"))
		if err := c.px.RemoveManifest("other.yaml"); err != nil {
			t.Fatal(err)
		}
		for _, s := range streams {
			if s.echo != nil {
				sent := time.Now()
				s.echo(t)
				echoes = append(echoes, time.Since(sent))
			}
		}
		time.Sleep(time.Until(start.Add(during * time.Duration(n+1) / rounds)))
	}
	slices.Sort(echoes)
	most := echoes[len(echoes)*95/100] // a busy machine stops now and then
	t.Logf("%d rounds in %s; of 100 echoes 95 took %s at most, the slowest %s", rounds,
		time.Since(start).Round(time.Millisecond), most.Round(time.Microsecond), echoes[len(echoes)-1].Round(time.Microsecond))
	if most > slow {
		t.Errorf("echoes take %s", most)
	}
	waitFor(t, "the memory is given back", func() error {
		if now := residentMemory(t, c.px.PID()); now > memory*12/10 {
			return fmt.Errorf("%d KiB, %d before", now, memory)
		}
		return nil
	})
}

// ending is a change that ends the streams of the cluster.
type ending struct {
	name string
	make func(t *testing.T)
}

func (c *changes) endings() []ending {
	no := false
	return []ending{
		{"deleted", func(t *testing.T) {
			if err := c.px.RemoveManifest("front.yaml"); err != nil {
				t.Fatal(err)
			}
		}},
		{"disabled", func(t *testing.T) { c.front(t, func(o *v1.ProxyKubeApi) { o.Spec.Enabled = &no }) }},
		{"new service", func(t *testing.T) {
			c.front(t, func(o *v1.ProxyKubeApi) { o.Spec.Service.ExternalService.URL += "/base" })
		}},
	}
}

// testEnding wants all streams to end in five seconds, and kubectl to say so.
func (c *changes) testEnding(t *testing.T, e ending) {
	const within = 5 * time.Second
	streams := c.open(t, time.Hour)
	streams.alive(t, c.mark(t))
	start := time.Now()
	e.make(t)
	for _, s := range streams {
		select {
		case <-s.kubectl.Done():
		case <-time.After(time.Until(start.Add(within + time.Second))):
			t.Errorf("%s has not ended after %s", s.name, within)
			s.kubectl.Stop()
			continue
		}
		s.mustSayItEnded(t)
	}
	t.Logf("all had ended after %s", time.Since(start).Round(time.Millisecond))
	c.front(t, nil)
	c.px.MustServe(t, tenant, "front")
}

// testTermination ends the process: watches end first, the others when the grace
// period is over.
func (c *changes) testTermination(t *testing.T) {
	const grace, slack = 10 * time.Second, 5 * time.Second // of the harness; of a busy machine
	streams := c.open(t, time.Hour)
	streams.alive(t, c.mark(t))
	start := time.Now()
	if err := c.px.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		<-s.kubectl.Done()
		if took := time.Since(start); took > grace+slack || s.echo == nil && took > slack {
			t.Errorf("%s ended after %s", s.name, took)
		}
		s.mustSayItEnded(t)
	}
	<-c.px.Done()
	if code := c.px.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

var (
	total    = regexp.MustCompile(`goroutine profile: total (\d+)`)
	resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)
)

func (c *changes) goroutines(t *testing.T) int {
	t.Helper()
	code, profile, err := c.px.AdminDo(t.Context(), http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
	if err != nil || code != http.StatusOK {
		t.Fatalf("asking for the goroutines: %d, %v", code, err)
	}
	n, err := strconv.Atoi(total.FindStringSubmatch(profile + "goroutine profile: total 0")[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func residentMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.Atoi(resident.FindStringSubmatch(string(status) + "VmRSS: 0 kB")[1])
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// waitFor waits a minute at most.
func waitFor(t *testing.T, what string, f func() error) {
	t.Helper()
	err := f()
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); err = f() {
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// mark writes a line into the log of the pod and changes the pod, and returns what
// its streams must show.
func (c *changes) mark(t *testing.T) string {
	t.Helper()
	c.marks++
	mark := fmt.Sprintf("mark-%d-", c.marks)
	c.admin.MustRun(t, "exec", streamtest.Pod, "--", "sh", "-c", "echo "+mark+" >/proc/1/fd/1")
	c.admin.MustRun(t, "annotate", "--overwrite", "pod", streamtest.Pod, "mark="+mark)
	return mark
}

// openStream is a kubectl that streams.
type openStream struct {
	name    string
	kubectl *kube.Running
	// echo sends something through an upgraded stream and wants it back; nil for
	// the others, which show marks.
	echo func(t *testing.T)
}

type openStreams []*openStream

func (all openStreams) alive(t *testing.T, mark string) {
	t.Helper()
	for _, s := range all {
		if s.echo != nil {
			s.echo(t)
		} else {
			s.kubectl.MustLine(t, mark)
		}
	}
}

func (all openStreams) end(t *testing.T) {
	t.Helper()
	for _, s := range all {
		s.kubectl.Stop()
	}
}

// open opens a stream of every protocol with a token of that lifetime.
func (c *changes) open(t *testing.T, lifetime time.Duration) openStreams {
	t.Helper()
	token := c.idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(lifetime).Unix()})
	k := kube.Kubectl{
		Kubeconfig: writeKubeconfig(t, kube.Access{Server: c.px.ClusterURL(tenant, "front"), CA: c.px.CA.PEM, Token: token}),
		Home:       filepath.Join(t.TempDir(), "home"), Namespaces: c.node.Namespaces,
	}
	var all openStreams
	for _, protocol := range []struct {
		name string
		env  []string
	}{{"HTTP/2", nil}, {"HTTP/1.1", []string{"DISABLE_HTTP2=1"}}} {
		k := k
		k.Env = protocol.env
		for name, args := range map[string][]string{
			"watch": {"get", "pod", streamtest.Pod, "--watch", `--output=jsonpath={.metadata.name} {.metadata.annotations.mark}{"\n"}`},
			"WatchList": {"get", "--raw", "/api/v1/namespaces/default/pods?watch=true&sendInitialEvents=true" +
				"&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"},
			"logs -f": {"logs", "-f", "--tail=1", streamtest.Pod},
		} {
			all = append(all, &openStream{name: name + " on " + protocol.name, kubectl: k.MustStart(t, args...)})
		}
	}
	for _, p := range streamtest.Protocols {
		all = append(all, c.exec(t, p.With(k), p.Name), c.forward(t, p.With(k), p.Name))
	}
	all.alive(t, c.mark(t))
	return all
}

func (c *changes) exec(t *testing.T, k kube.Kubectl, protocol string) *openStream {
	t.Helper()
	r := k.MustStart(t, "exec", "-i", streamtest.Pod, "--", "cat")
	n := 0
	return &openStream{name: "exec over " + protocol, kubectl: r, echo: func(t *testing.T) {
		t.Helper()
		n++
		line := fmt.Sprintf("line %d.", n)
		if _, err := fmt.Fprintln(r.Stdin, line); err != nil {
			t.Fatal(err)
		}
		r.MustLine(t, line)
	}}
}

func (c *changes) forward(t *testing.T, k kube.Kubectl, protocol string) *openStream {
	t.Helper()
	r := k.MustStart(t, "port-forward", "pod/"+streamtest.Pod, ":8080")
	line := r.MustLine(t, "Forwarding from 127.0.0.1:")
	address := strings.Fields(strings.TrimPrefix(line, "Forwarding from "))[0]
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: k.Namespaces.DialContext, DisableKeepAlives: true}}
	return &openStream{name: "port-forward over " + protocol, kubectl: r, echo: func(t *testing.T) {
		t.Helper()
		res, err := client.Get("http://" + address + "/name")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != streamtest.Pod+"\n" {
			t.Errorf("the pod answers %q, %v", body, err)
		}
	}}
}

// mustSayItEnded wants kubectl to end as docs/streams.md says: a watch or a log may
// end at any time, a command or a port-forward that is cut has failed.
func (s *openStream) mustSayItEnded(t *testing.T) {
	t.Helper()
	r := s.kubectl.MustEnd(t)
	want, code := "", 1
	switch name, protocol, _ := strings.Cut(s.name, " over "); {
	case s.echo == nil:
		code = 0
	case name == "port-forward":
		want = "error: lost connection to pod"
	case protocol == "SPDY":
		want = "error: the proxy ended the stream"
	default:
		want = "websocket: close 1001 (going away)"
	}
	if r.ExitCode != code || !strings.Contains(r.Stderr, want) {
		t.Errorf("%s: exit code %d, %q", s.name, r.ExitCode, r.Stderr)
	}
}
