package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// Reviews with a user, and without one.
const (
	ofCarol     = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"carol","groups":["staff"]}}}`
	ofAnonymous = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"system:anonymous","groups":["system:unauthenticated"]}}}`
	ofNobody    = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"groups":["system:masters"]}}}`
	ofBlank     = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":" "}}}`
)

// bare is a server that lets a handler answer everything.
func bare(t *testing.T, protocols ...string) *rawserver.Server {
	t.Helper()
	return rawserver.Start(t, rawserver.Options{Bare: true, NoIdentity: true, Protocols: protocols})
}

func inJSON(code int, body string) rawserver.Handler {
	return rawserver.Answer(code, "application/json", []byte(body))
}

// AUTH-8, AUTH-13: whatever stands where an apiserver should, a token is refused
// by a 401 alone, is sent nowhere else, and nothing of it is relayed.
func TestAnswersThatAreNone(t *testing.T) {
	const token = "token-of-a-caller-0123456789"
	elsewhere := bare(t)
	tests := []struct {
		name    string
		handler rawserver.Handler
		code    int
		text    string
	}{
		{"401", inJSON(401, "{}"), 401, "refuses the token"},
		{"403", inJSON(403, `{"kind":"Status","message":"forbidden: `+token+`"}`), 503, "does not let the caller make a SelfSubjectReview"},
		{"404", inJSON(404, "{}"), 503, "does not serve selfsubjectreviews"},
		{"429", inJSON(429, "{}"), 503, "too many requests"},
		{"500", inJSON(500, token), 503, "with 500"},
		{"503", inJSON(503, token), 503, "with 503"},
		{"200", inJSON(200, ofAnonymous), 502, "with 200"},
		{"redirect", rawserver.Redirect(307, elsewhere.URL+"/"), 502, "with 307"},
		{"anonymous", inJSON(201, ofAnonymous), 503, "did not see the token"},
		{"nobody", inJSON(201, ofNobody), 502, "did not answer a SelfSubjectReview with one"},
		{"blank", inJSON(201, ofBlank), 403, "has no username for the configured claim"},
		{"page", rawserver.Answer(201, "text/html", []byte("<html>"+token)), 502, "did not answer a SelfSubjectReview with one"},
		{"large", inJSON(201, `{"padding":"`+strings.Repeat("x", 1<<20)+`"}`), 502, "did not answer a SelfSubjectReview with one"},
		{"closed", func(w *rawserver.Writer, _ *rawserver.Request) { w.Abort() }, 502, "the connection to the cluster's apiserver failed"},
		{"no-HTTP", rawserver.Raw(token + "\r\n\r\n"), 502, "the connection to the cluster's apiserver failed"},
	}
	for _, protocol := range []string{"h2", "http/1.1"} {
		up := bare(t, protocol)
		px := start(t, "", proxy.Cluster(ns, "prod", up.URL, up.ServerCA))
		for _, tt := range tests {
			if tt.name == "no-HTTP" && protocol == "h2" {
				continue // there are no bytes of one's own on HTTP/2
			}
			t.Run(protocol+" "+tt.name, func(t *testing.T) {
				up.Handle(tt.handler)
				// Each with a token of its own: refusals are remembered.
				r := ask(t, px, "prod", token+tt.name)
				wantRefused(t, r, tt.code, tt.text)
				if strings.Contains(r.Status.Message, token) {
					t.Errorf("the message holds what the apiserver sent: %s", r.Status.Message)
				}
			})
		}
		for _, r := range up.Requests() {
			if r.Header.Get("User-Agent") == userAgent {
				t.Errorf("a request was relayed: %v", r)
			}
		}
		if strings.Contains(px.Everything(), token) {
			t.Error("the log holds a token")
		}
	}
	elsewhere.None(t)
}

// AUTH-13's limits hold for an apiserver, too: one that never answers costs its
// callers ten seconds, and no other cluster anything.
func TestHangingAPIServer(t *testing.T) {
	w, up := get(t), bare(t)
	up.Handle(rawserver.Hang)
	px := start(t, "", w.cluster("good"), proxy.Cluster(ns, "hanging", up.URL, up.ServerCA))
	began := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			r := ask(t, px, "hanging", "token-of-a-caller")
			if r.Code != http.StatusBadGateway || !strings.Contains(r.Status.Message, "did not answer in time") {
				t.Errorf("%d %s after %v", r.Code, r.Status.Message, time.Since(began))
			}
		})
	}
	if _, err := up.Wait(t.Context(), func(*rawserver.Request) bool { return true }); err != nil {
		t.Fatal(err)
	}
	wantUser(t, ask(t, px, "good", devToken), "dev")
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the neighbour took %v", took)
	}
	all.Wait()
	if took := time.Since(began); took < 9*time.Second || took > 40*time.Second {
		t.Errorf("an answer after %v, want about 10 s", took)
	}
	if all := up.Requests(); len(all) != 1 {
		t.Errorf("%d reviews", len(all))
	}
	// A caller that leaves ends no other caller's review.
	ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, px.ClusterURL(ns, "hanging")+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer another-token")
	client := px.Client("h1")
	defer client.CloseIdleConnections()
	if _, err := client.Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	up.Handle(inJSON(201, ofCarol))
	eventually(t, "it is served again", func() bool { return ask(t, px, "hanging", "a-third-token").Code == http.StatusCreated })
}

// AUTH-8, REC-6: an apiserver that is down is a 502 at once, shows as Reachable
// and as no fault of an issuer, and is served when it is back.
func TestAPIServerThatIsDown(t *testing.T) {
	up := bare(t)
	up.Suspend()
	px := start(t, "probe_interval 1s", proxy.Cluster(ns, "prod", up.URL, up.ServerCA))
	const token = "token-of-a-caller"
	for range 3 {
		wantRefused(t, ask(t, px, "prod", token), http.StatusBadGateway, "cannot be reached")
	}
	s := px.MustCluster(t, ns, "prod", func(s *proxy.ClusterStatus) bool {
		r := s.Condition("Reachable")
		return r != nil && r.Reason == "ConnectFailed"
	})
	if s.Ready() != "True/Serving" || s.Condition("IssuerUnavailable") != nil {
		t.Errorf("status %+v", s.Status)
	}
	up.Handle(inJSON(201, ofCarol))
	if err := up.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is served", func() bool { return ask(t, px, "prod", token).Code == http.StatusCreated })
}
