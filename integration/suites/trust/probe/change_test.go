package probe

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// TRUST-3 while requests come all the time: the certificate changes again and
// again between a good one and one of the client CA, under whose name every
// request would run, and the prefix changes with it. No request runs under the
// certificate's name, and none under a prefix before the apiserver was asked
// about that prefix.
func TestTRUST3NoRequestSlipsThroughAChange(t *testing.T) {
	s := newSubject(t, "")
	s.answers(t, http.StatusCreated, "")
	from := mark(t, s.w.right)

	var wg sync.WaitGroup
	var passed, closed atomic.Int64
	done := make(chan struct{})
	for i := range 8 {
		wg.Go(func() {
			client := s.px.Client([]string{"h1", "h2"}[i%2])
			defer client.CloseIdleConnections()
			for {
				select {
				case <-done:
					return
				default:
				}
				header := kube.Bearer(s.token)
				header.Set("User-Agent", "hammer")
				r, err := kube.WhoAmI(t.Context(), client, s.px.ClusterURL(namespace, name), header)
				switch {
				case err != nil:
					t.Error(err)
					return
				case r.Code == http.StatusCreated && strings.HasSuffix(r.User.Username, ":alice"):
					passed.Add(1)
				case r.Code == http.StatusServiceUnavailable:
					closed.Add(1)
				default:
					t.Errorf("%d %+v %s", r.Code, r.User, r.Status.Message)
					return
				}
			}
		})
	}
	const changes = 12
	for i := range changes {
		ca, code, message := s.w.pki.FrontProxyCA, http.StatusCreated, ""
		if i%2 == 0 {
			ca, code, message = s.w.pki.ClientCA, http.StatusServiceUnavailable, ": UpstreamIdentityNotHonoured"
		}
		userPrefix := string(rune('a'+i)) + ":"
		s.write(t, func(c *v1.ProxyKubeApi) { c.Spec.UpstreamAuth.UserPrefix = &userPrefix }, s.link.url, validFor(ca, i))
		if r := s.answers(t, code, message); code == http.StatusCreated && r.User.Username != userPrefix+"alice" {
			t.Errorf("the apiserver saw %q", r.User.Username)
		}
	}
	close(done)
	wg.Wait()
	s.px.Stop()

	events := since(t, s.w.right, from, func(e *auditv1.Event) bool { return byProbe(e) || e.UserAgent == "hammer" || e.UserAgent == "waiting" })
	asked := map[string]time.Time{}
	users := map[string]int{}
	for _, e := range events {
		if before, isProbe := strings.CutSuffix(e.User.Username, "proxyauth-probe"); byProbe(&e) && isProbe && asked[before].IsZero() {
			asked[before] = e.RequestReceivedTimestamp.Time
		}
	}
	for _, e := range events {
		before, isAlice := strings.CutSuffix(e.User.Username, "alice")
		switch {
		case byProbe(&e):
		case !isAlice || isUnasserted(&e):
			t.Fatalf("a request ran as %q: %s %s", e.User.Username, e.UserAgent, e.RequestURI)
		case before != prefix && (asked[before].IsZero() || !e.RequestReceivedTimestamp.After(asked[before])):
			t.Fatalf("a request ran as %q before the apiserver was asked", e.User.Username)
		default:
			users[e.User.Username]++
		}
	}
	t.Logf("%d changes under %d requests: %d passed, %d were answered 503; the apiserver saw %v", changes, passed.Load()+closed.Load(), passed.Load(), closed.Load(), users)
	if passed.Load() == 0 || closed.Load() == 0 || len(users) < changes/2 {
		t.Error("the test did not see what it is about")
	}
}
