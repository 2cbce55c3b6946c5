package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// crowd is how many requests come at once.
const crowd = 200

// TRUST-3: the first traffic of a proxy is 200 requests at once, for an
// apiserver in one of several states. Each is answered as section 13 says, and
// none runs on the apiserver under another identity than the asserted one: the
// only requests under the name of the certificate, or under none, are the
// proxy's own probes.
func TestTRUST3FirstTraffic(t *testing.T) {
	w := get(t)
	const notTrusted, notHonoured, unknown = "FrontProxyNotTrusted", "UpstreamIdentityNotHonoured", "UpstreamTrustUnknown"
	tests := []struct {
		name string
		api  *kube.APIServer
		pair *pki.KeyPair
		// link is how the pipe behaves; nil holds every byte back until the
		// whole crowd is there.
		link func(*pipe)
		// change changes the object.
		change func(*v1.ProxyKubeApi)
		// closed is the reason of the 503s; empty when requests pass.
		closed string
	}{
		{name: "right", api: w.right, pair: w.goodPair()},
		{name: "front-proxy CA unknown", api: w.right, pair: pki.Must(pki.MustCA("stranger").Client(kube.FrontProxyName)), closed: notTrusted},
		{name: "CN unknown", api: w.right, pair: pki.Must(w.pki.FrontProxyCA.Client(otherName)), closed: notTrusted},
		// The probe itself runs under the certificate's name then; there is
		// no way to find that out without.
		{name: "certificate of the client CA", api: w.right, pair: pki.Must(w.pki.ClientCA.Client(kube.FrontProxyName, "staff")), closed: notHonoured},
		{name: "no group flag", api: w.noGroup, pair: w.goodPair(), closed: notHonoured},
		{name: "no extra flag", api: w.noExtra, pair: w.goodPair(), closed: notHonoured},
		{name: "no uid flag, uid forwarded", api: w.right, pair: w.goodPair(), change: func(c *v1.ProxyKubeApi) { c.Spec.UpstreamAuth.ForwardUID = true }, closed: notHonoured},
		{name: "delaying pipe", api: w.right, pair: w.goodPair(), link: func(p *pipe) { p.delay = 250 * time.Millisecond }},
		{name: "silent pipe", api: w.right, pair: w.goodPair(), link: func(p *pipe) { p.hold() }, closed: unknown},
		{name: "closed pipe", api: w.right, pair: w.goodPair(), link: func(p *pipe) { p.close() }, closed: unknown},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from := mark(t, tt.api)
			link := newPipe(t, tt.api.Host)
			release := func() {}
			if tt.link != nil {
				tt.link(link)
			} else {
				link.hold()
				release = link.release
			}
			px := w.start(t, link.url, tt.pair, "", tt.change)
			agent := fmt.Sprintf("crowd-%d", i)
			began := time.Now()
			answers := w.fire(t, px, agent, release)
			took := time.Since(began)

			kinds := map[string]int{}
			for _, a := range answers {
				kinds[a.kind]++
				if tt.closed == "" && a.kind != "200" && a.kind != "201 proxyauth:alice" {
					t.Fatalf("an answer is %s: %s", a.kind, a.body)
				}
				if tt.closed != "" {
					wantClosed(t, a, tt.closed)
				}
			}
			if tt.closed == "" && (kinds["200"] != crowd/2 || kinds["201 proxyauth:alice"] != crowd/2) {
				t.Errorf("answers %v", kinds)
			}
			if tt.closed != "" && tt.closed != unknown {
				// An upgrade takes another connection and meets the same gate.
				a := rawclient.Do(t, px.Host, px.CA.Pool(), rawclient.Request("GET", "/clusters/"+namespace+"/"+name+"/api/v1/namespaces/default/pods/p/exec?command=sh", px.Host,
					append(rawclient.UpgradeLines("Sec-WebSocket-Protocol: v5.channel.k8s.io"), "User-Agent: "+agent, "Authorization: Bearer "+w.idp.Token(oidc.Alice, nil))...))
				wantClosed(t, answer{code: a.Code, header: a.Header, body: a.Body}, tt.closed)
			}
			// The audit log is complete once the last request is in it.
			users := func(e *auditv1.Event) bool { return e.UserAgent == agent }
			want := crowd
			if tt.closed != "" {
				want = 0
			}
			waitFor(t, func() bool { return len(since(t, tt.api, from, users)) >= want })
			for _, e := range since(t, tt.api, from, users) {
				if e.User.Username != "proxyauth:alice" {
					t.Fatalf("a request ran as %q: %+v", e.User.Username, e)
				}
			}
			if n := len(since(t, tt.api, from, users)); n != want {
				t.Errorf("%d requests reached the apiserver, want %d", n, want)
			}
			for _, e := range since(t, tt.api, from, isUnasserted) {
				if !byProbe(&e) {
					t.Errorf("a request under another name: %q %s %s", e.User.Username, e.UserAgent, e.RequestURI)
				}
			}
			probes := since(t, tt.api, from, byProbe)
			t.Logf("%d answers in %v: %v; %d probes at the apiserver", len(answers), took.Round(time.Millisecond), kinds, len(probes))
			// The replica's own check is single-flight, and at most one a
			// second; the schedule adds its own.
			if limit := 3 + int(took/time.Second); len(probes) > limit {
				t.Errorf("%d probes, want at most %d", len(probes), limit)
			}
			checkStatus(t, px, tt.closed)
		})
	}
}

// answer is what one of the crowd got.
type answer struct {
	kind   string
	code   int
	header http.Header
	body   string
}

// fire sends the crowd's requests over HTTP/1.1, each on a connection of its
// own, and HTTP/2, all on one. release is called when all are on the wire, or
// soon enough for a check that takes at most 5 s.
func (w *world) fire(t *testing.T, px *proxy.Proxy, agent string, release func()) []answer {
	t.Helper()
	token := w.idp.Token(oidc.Alice, nil)
	clients := []*http.Client{px.Client("h1"), px.Client("h2")}
	var sent atomic.Int64
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		switch sent.Add(1) {
		case 1:
			time.AfterFunc(2*time.Second, release)
		case crowd:
			release()
		}
	}}
	answers := make([]answer, crowd)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			<-start
			method, path := http.MethodGet, "/version"
			if i%4 >= 2 {
				method, path = http.MethodPost, kube.ReviewPath
			}
			var body io.Reader
			if method == http.MethodPost {
				body = strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
			}
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), method, px.ClusterURL(namespace, name)+path, body)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header = kube.Bearer(token)
			req.Header.Set("User-Agent", agent)
			req.Header.Set("Content-Type", "application/json")
			answers[i], err = do(clients[i%2], req)
			if err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	for _, c := range clients {
		c.CloseIdleConnections()
	}
	return answers
}

func do(client *http.Client, req *http.Request) (answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{kind: fmt.Sprint(resp.StatusCode), code: resp.StatusCode, header: resp.Header, body: string(body)}
	var object struct {
		Status  json.RawMessage `json:"status"`
		Message string          `json:"message"`
	}
	_ = json.Unmarshal(body, &object)
	if resp.StatusCode == http.StatusCreated {
		var status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		}
		_ = json.Unmarshal(object.Status, &status)
		a.kind += " " + status.UserInfo.Username
	} else if object.Message != "" {
		a.kind += " " + object.Message
	}
	return a, nil
}

// wantClosed checks an answer of section 13.
func wantClosed(t *testing.T, a answer, reason string) {
	t.Helper()
	want := "this cluster is not ready for upstream mode FrontProxy: " + reason
	var status metav1.Status
	err := json.Unmarshal([]byte(a.body), &status)
	if a.code != http.StatusServiceUnavailable || err != nil || status.Kind != "Status" || status.Code != http.StatusServiceUnavailable ||
		status.Message != want || a.header.Get("Warning") != `299 - "proxyauth: `+want+`"` || a.header.Get("Retry-After") != "" {
		t.Fatalf("%d %s %v, want 503 %s", a.code, a.body, a.header, want)
	}
}

// checkStatus looks at what the proxy says of the cluster.
func checkStatus(t *testing.T, px *proxy.Proxy, closed string) {
	t.Helper()
	ready, trust := "True/Serving", v1.TrustTrusted
	switch closed {
	case "FrontProxyNotTrusted":
		ready, trust = "False/"+closed, v1.TrustRejected
	case "UpstreamIdentityNotHonoured":
		ready, trust = "False/"+closed, v1.TrustNotHonoured
	case "UpstreamTrustUnknown":
		ready, trust = "Unknown/"+closed, v1.TrustUnknown
	}
	s := px.MustCluster(t, namespace, name, func(s *proxy.ClusterStatus) bool {
		return s.Ready() == ready && s.Status.UpstreamAuth != nil && s.Status.UpstreamAuth.Trust == trust
	})
	if notice := s.Condition("UpstreamTrustUnknown"); (notice != nil) != (trust == v1.TrustUnknown) {
		t.Errorf("notice UpstreamTrustUnknown: %v", notice)
	}
}

// waitFor polls until ok.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return // what is asserted next says what is missing
		}
	}
}
