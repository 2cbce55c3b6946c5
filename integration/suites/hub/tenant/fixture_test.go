package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	prefix = "proxyauth:"
	// mine is the attacker's namespace, theirs another tenant's, and attacker who
	// has the ClusterRole edit in mine and no other right.
	mine, theirs = "team-a", "team-b"
	attacker     = "mallory"

	// patience bounds what has no bound of its own; loaded machines are slow.
	patience = 60 * time.Second
	// slack is added to the bounds of the product for the same reason.
	slack = 3 * time.Second

	notReady = "this cluster is not ready for upstream mode FrontProxy: "
	passing  = "this cluster is not ready: "
)

// quick lets what is asked again and again be asked often.
const quick = "upstream_client_ttl 1s\nprobe_interval 2s"

// world is a hub with a proxy, an identity provider, and a cluster of another
// tenant that must go on whatever happens: theirs/steady.
type world struct {
	*testing.T
	hub *hub.Hub
	// tenant is the attacker's kubectl, own the hub as the attacker. All that is done
	// in mine is done by these.
	tenant kube.Kubectl
	own    *hub.Hub
	etcd   *kube.Etcd
	idp    *oidc.Provider
	px     *proxy.Proxy
	token  string
	steady *rawserver.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, idp: oidc.Start(t, oidc.Options{}), etcd: kube.StartSharedEtcd(t)}
	w.hub = hub.Start(t, kube.Options{Etcd: w.etcd})
	w.addTenant(t)
	w.token = w.idp.Token(oidc.Alice, nil)
	w.px = proxy.Start(t, proxy.Options{Hub: w.hub.Kubeconfig, Settings: quick})
	w.steady = rawserver.Start(t, rawserver.Options{})
	w.approve(theirs, "steady", w.steady, 0)
	w.apply(w.cluster(theirs, "steady", w.steady))
	w.answers(theirs, "steady", http.StatusCreated, "")
	return w
}

// addTenant makes the attacker a user of the hub.
func (w *world) addTenant(t *testing.T) {
	w.tenant = w.hub.User(t, attacker, mine)
	w.own = w.hub.As(w.tenant)
}

// sub is the world for a subtest.
func (w *world) sub(t *testing.T) *world {
	s := *w
	s.T = t
	return &s
}

// apply puts objects into force: those of the attacker's namespace as the
// attacker, all others as the administrator of the hub.
func (w *world) apply(objects ...any) {
	w.Helper()
	var own, others []any
	for _, o := range objects {
		if object, ok := o.(metav1.Object); ok && object.GetNamespace() == mine {
			own = append(own, o)
		} else {
			others = append(others, o)
		}
	}
	for _, part := range []struct {
		by      *hub.Hub
		objects []any
	}{{w.hub, others}, {w.own, own}} {
		if len(part.objects) > 0 {
			part.by.Apply(w, part.objects...)
		}
	}
}

// patch and remove are merge patches and deletions by the attacker.
func (w *world) patch(kind, name, patch string) {
	w.Helper()
	w.own.Patch(w, mine, kind, name, patch)
}

func (w *world) remove(kind, name string) {
	w.Helper()
	w.own.Delete(w, mine, kind, name)
}

// cluster is an object in FrontProxy for a server.
func (w *world) cluster(namespace, name string, s *rawserver.Server) *v1.ProxyKubeApi {
	return proxy.FrontProxyCluster(namespace, name, s.URL, s.ServerCA, prefix, proxy.Authenticator(w.idp))
}

// passthrough is one in Passthrough.
func (w *world) passthrough(namespace, name string, s *rawserver.Server) *v1.ProxyKubeApi {
	c := w.cluster(namespace, name, s)
	c.Spec.UpstreamAuth = nil
	return c
}

// approve writes the Secret of the proxy admin, with a certificate of that
// serial number.
func (w *world) approve(namespace, name string, s *rawserver.Server, serial int64) {
	w.Helper()
	w.apply(proxy.FrontProxySecret(namespace, name, s.URL, s.FrontProxy(serial)))
}

// ask sends one review through the proxy.
func (w *world) ask(namespace, name string) *kube.Review {
	w.Helper()
	client := w.px.Client("h2")
	defer client.CloseIdleConnections()
	return kube.MustWhoAmI(w, client, w.px.ClusterURL(namespace, name), kube.Bearer(w.token))
}

// answers waits until the cluster answers so.
func (w *world) answers(namespace, name string, code int, message string) {
	w.Helper()
	var r *kube.Review
	deadline := time.Now().Add(patience)
	for {
		if r = w.ask(namespace, name); r.Code == code && r.Status.Message == message {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s/%s: %d %q, want %d %q", namespace, name, r.Code, r.Status.Message, code, message)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// stays checks for a while that the cluster answers nothing else.
func (w *world) stays(namespace, name string, code int, message string, d time.Duration) {
	w.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if r := w.ask(namespace, name); r.Code != code || r.Status.Message != message {
			w.Fatalf("%s/%s: %d %q, want %d %q all the time", namespace, name, r.Code, r.Status.Message, code, message)
		}
	}
}

// othersServe checks that the other tenant noticed nothing.
func (w *world) othersServe() {
	w.Helper()
	start := time.Now()
	if r := w.ask(theirs, "steady"); r.Code != http.StatusCreated || r.User.Username != prefix+oidc.Alice || time.Since(start) > slack {
		w.Errorf("the other tenant after %v: %d %q as %q", time.Since(start), r.Code, r.Status.Message, r.User.Username)
	}
}

// ready waits for the Ready condition of the attacker's object and returns its
// message.
func (w *world) ready(name, want string) string {
	w.Helper()
	return hub.Message(w.hub.WaitReady(w, mine, name, want), "Ready")
}

// watching opens a watch, and returns how long it took to end, once it has.
func (w *world) watching(namespace, name string) (ended func() time.Duration) {
	w.Helper()
	client := w.px.Client("h2")
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.px.ClusterURL(namespace, name)+"/api/v1/namespaces/default/configmaps?watch=true", nil)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.Fatalf("watching: %v %v", resp, err)
	}
	w.Cleanup(func() { resp.Body.Close(); client.CloseIdleConnections() })
	if _, err := io.CopyN(io.Discard, resp.Body, 8); err != nil {
		w.Fatalf("reading the watch: %v", err)
	}
	end := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		end <- err
	}()
	return func() time.Duration {
		w.Helper()
		start := time.Now()
		select {
		case err := <-end:
			if err != nil {
				w.Errorf("the watch did not end cleanly: %v", err)
			}
		case <-time.After(patience):
			w.Fatal("the watch goes on")
		}
		return time.Since(start)
	}
}

// ticking answers a watch, and everything else as WhoAmI does.
func ticking(rw *rawserver.Writer, r *rawserver.Request) {
	if !strings.Contains(r.Target, "watch=true") {
		rawserver.WhoAmI(rw, r)
		return
	}
	rw.Header(http.StatusOK, rawserver.Field{Name: "Content-Type", Value: "application/json"})
	for rw.Write([]byte("{\"type\":\"BOOKMARK\"}\n")) {
		select {
		case <-rw.Context().Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// withCertificate are the requests that a client certificate came with.
func withCertificate(s *rawserver.Server) []*rawserver.Request {
	var all []*rawserver.Request
	for _, r := range s.AllRequests() {
		if r.Serial != nil {
			all = append(all, r)
		}
	}
	return all
}

// labelled is a Secret in some namespace with the label of the product.
func labelled(namespace, name string, data map[string]string) any {
	s := proxy.Secret(namespace, name, data)
	s.Labels = map[string]string{proxy.ManagedByLabel: proxy.ManagedBy}
	return s
}

func keyRef(namespace, name, key string) *v1.KeyReference {
	r := &v1.KeyReference{Name: name, Key: key}
	if namespace != "" {
		r.Namespace = &namespace
	}
	return r
}

// nothingTold checks that no secret is in a status, an Event or the log, and
// that no status or Event names the account of the proxy.
func (w *world) nothingTold(secrets ...string) {
	w.Helper()
	objects := w.hub.Admin.MustRun(w, "get", v1.Resource, "-A", "-o", "json").Stdout
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Status   json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(objects), &list); err != nil || len(list.Items) == 0 {
		w.Fatalf("reading the statuses: %v", err)
	}
	told := map[string]string{"the log": w.px.Everything()}
	for _, item := range list.Items {
		told["the status of "+item.Metadata.Namespace+"/"+item.Metadata.Name] = string(item.Status)
	}
	var events struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(w.hub.Admin.MustRun(w, "get", "events", "-A", "-o", "json").Stdout), &events); err != nil || len(events.Items) == 0 {
		w.Fatalf("reading the Events: %v", err)
	}
	for i, item := range events.Items {
		told[fmt.Sprintf("Event %d", i)] = fmt.Sprint(item)
	}
	for where, text := range told {
		for _, secret := range append(secrets, w.token) {
			if strings.Contains(text, secret) {
				w.Errorf("%s holds %q", where, secret)
			}
		}
		if where != "the log" && strings.Contains(text, "system:serviceaccount") {
			w.Errorf("%s names the account of the proxy: %s", where, text)
		}
	}
}

// within runs a check of what must not take longer than that.
func (w *world) within(limit time.Duration, what string, holds func() bool) {
	w.Helper()
	if took := w.hub.Eventually(w, what, holds); took > limit {
		w.Errorf("%s only after %v", what, took)
	}
}

// get is the code of a plain request, with a token.
func (w *world) get(namespace, name string) int {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	client := w.px.Client("h1")
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.px.ClusterURL(namespace, name)+"/api", nil)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := client.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
