package replicas

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	prefix    = "proxyauth:"
	namespace = "team-a"
	// lease is the product's default.
	lease = "proxyauthk8s"
	// soon bounds what must come; loaded machines are slow.
	soon = 60 * time.Second
	// probeInterval is that of the replicas.
	probeInterval = 5 * time.Second
)

// world is a hub, an apiserver that trusts the proxy, and a user of it.
type world struct {
	*hub.Hub
	target *kube.APIServer
	idp    *oidc.Provider
	token  string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, kube.Options{}, kube.Options{})
}

// newWorldOf is newWorld with these options of the two apiservers.
func newWorldOf(t *testing.T, ofHub, ofTarget kube.Options) *world {
	t.Helper()
	ofHub.Etcd = kube.StartSharedEtcd(t)
	ofTarget.Etcd = ofHub.Etcd
	w := &world{Hub: hub.Start(t, ofHub), target: kube.Start(t, ofTarget), idp: oidc.Start(t, oidc.Options{})}
	w.token = w.idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(time.Hour).Unix()})
	return w
}

// cluster makes a ProxyKubeApi of the target in FrontProxy, with its certificate.
func (w *world) cluster(t *testing.T, name string, pair *pki.KeyPair) {
	t.Helper()
	w.Apply(t, proxy.FrontProxySecret(namespace, name, w.target.URL, pair),
		proxy.FrontProxyCluster(namespace, name, w.target.URL, w.target.PKI.ServerCA, prefix, proxy.Authenticator(w.idp)))
}

// good is cluster with a certificate that the target trusts, once it is served.
func (w *world) good(t *testing.T, name string, replicas ...*replica) {
	t.Helper()
	w.cluster(t, name, pki.Must(w.target.FrontProxy()))
	for _, r := range replicas {
		r.MustServe(t, namespace, name)
	}
}

// replica is one process of the proxy.
type replica struct {
	*proxy.Proxy
	w *world
	// pod is its POD_NAME.
	pod string
	// credential tells its requests from those of the others in the audit log
	// of the hub: each has a token of its own of the one ServiceAccount.
	credential string
}

func (w *world) replica(t *testing.T, pod string, change func(*proxy.Options)) *replica {
	t.Helper()
	return w.replicaWith(t, pod, w.account(t), change)
}

// account is a kubeconfig with a token of its own of the ServiceAccount.
func (w *world) account(t *testing.T) string { return w.AccountKubeconfig(t, "proxyauthk8s") }

// replicaWith is replica for a kubeconfig made before, while the hub is away.
func (w *world) replicaWith(t *testing.T, pod, kubeconfig string, change func(*proxy.Options)) *replica {
	t.Helper()
	o := proxy.Options{Hub: kubeconfig, Env: []string{"POD_NAME=" + pod}, Settings: "probe_interval " + probeInterval.String(), LogLevel: "INFO"}
	if change != nil {
		change(&o)
	}
	return &replica{Proxy: proxy.Start(t, o), w: w, pod: pod, credential: credentialOf(t, kubeconfig)}
}

// credentialOf is what the audit log calls a token (the extra
// authentication.kubernetes.io/credential-id).
func credentialOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	user := config.Contexts[config.CurrentContext].AuthInfo
	parts := strings.Split(config.AuthInfos[user].Token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.ID == "" {
		t.Fatalf("no jti: %v", err)
	}
	return "JTI=" + claims.ID
}

func (r *replica) sent(e *auditv1.Event) bool {
	return slices.Contains(e.User.Extra["authentication.kubernetes.io/credential-id"], r.credential)
}

// writes counts this replica's writes of statuses and Events.
func (r *replica) writes(t *testing.T) (statuses, events int) {
	t.Helper()
	for _, e := range r.w.Requests(t, r.sent) {
		switch {
		case e.ObjectRef == nil || e.Verb != "patch" && e.Verb != "update" && e.Verb != "create":
		case e.ObjectRef.Resource == v1.Resource && e.ObjectRef.Subresource == "status":
			statuses++
		case e.ObjectRef.Resource == "events":
			events++
		}
	}
	return statuses, events
}

// ask sends one request as the user and returns the code and the message of a
// Status.
func (r *replica) ask(t *testing.T, client *http.Client, name string) (code int, message string) {
	t.Helper()
	code, message, err := r.try(t, client, name)
	if err != nil {
		t.Fatal(err)
	}
	return code, message
}

// try is ask that may fail.
func (r *replica) try(t *testing.T, client *http.Client, name string) (code int, message string, err error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.ClusterURL(namespace, name)+"/version", nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+r.w.token)
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	var status struct{ Message string }
	err = json.NewDecoder(resp.Body).Decode(&status)
	return resp.StatusCode, status.Message, err
}

// waitAnswer asks until the answer has that code and a message with that text.
func (r *replica) waitAnswer(t *testing.T, name string, code int, text string) time.Duration {
	t.Helper()
	client := r.Client("h2")
	defer client.CloseIdleConnections()
	var got int
	var message string
	start := time.Now()
	for {
		got, message = r.ask(t, client, name)
		if got == code && strings.Contains(message, text) {
			return time.Since(start)
		}
		if time.Since(start) > soon {
			t.Fatalf("%s of %s answers %d %q, not %d %q within %v", name, r.pod, got, message, code, text, soon)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ready is the answer of /readyz.
func (r *replica) ready(t *testing.T) int {
	t.Helper()
	resp, err := http.Get(r.Health + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// lease is the Lease of the election; ok is false when there is none.
func (w *world) lease(t *testing.T) (l *coordinationv1.Lease, ok bool) {
	t.Helper()
	l = new(coordinationv1.Lease)
	return l, w.Find(t, "/apis/coordination.k8s.io/v1/namespaces/"+hub.Namespace+"/leases/"+lease, l)
}

// holder is the pod that holds the Lease, empty for none.
func (w *world) holder(t *testing.T) string {
	t.Helper()
	l, ok := w.lease(t)
	if !ok || l.Spec.HolderIdentity == nil {
		return ""
	}
	pod, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_")
	return pod
}

// waitHolder waits until one of the replicas leads, and says which, how long
// that took, and which do not.
func (w *world) waitHolder(t *testing.T, among ...*replica) (leader *replica, others []*replica, took time.Duration) {
	t.Helper()
	took = w.Eventually(t, "a leader", func() bool {
		pod := w.holder(t)
		i := slices.IndexFunc(among, func(r *replica) bool { return r.pod == pod })
		if i < 0 {
			return false
		}
		leader, others = among[i], slices.Concat(among[:i], among[i+1:])
		return true
	})
	return leader, others, took
}

// logged counts the lines of the log that hold a text.
func (r *replica) logged(t *testing.T, text string) int {
	t.Helper()
	log, err := os.ReadFile(r.Value("log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), text)
}

// stop is SIGTERM; it fails the test unless the proxy ends well.
func (r *replica) stop(t *testing.T) {
	t.Helper()
	if code := r.Stop(); code != 0 {
		t.Errorf("%s ended with code %d", r.pod, code)
	}
}

func readyIs(s *v1.ProxyKubeApiStatus) string {
	return fmt.Sprintf("%s generation %d", hub.Condition(s, "Ready"), s.ObservedGeneration)
}
