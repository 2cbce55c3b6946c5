package tenant

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// ownCheck is how long a request waits for the check of a new set (TRUST-3).
const ownCheck = 5 * time.Second

// TRUST-3, TRUST-4: an apiserver that does not answer the probe proves nothing:
// a set that it refused stays closed, and one never seen does not open.
func stalling(w *world) {
	up := rawserver.Start(w, rawserver.Options{Bare: true})
	reset := func(rw *rawserver.Writer, r *rawserver.Request) {
		if c, err := rw.Hijack(); err == nil {
			if closer, ok := c.(net.Conn); ok {
				closer.Close()
			}
		}
	}
	stalls := []struct {
		name string
		h    rawserver.Handler
	}{
		{"hang", rawserver.Hang},
		{"500", rawserver.Answer(http.StatusInternalServerError, "text/plain", []byte("no"))},
		{"404", rawserver.Answer(http.StatusNotFound, "text/plain", nil)},
		{"reset", reset},
		{"403", rawserver.Answer(http.StatusForbidden, "application/json", []byte(`{"kind":"Status","message":"no"}`))},
		{"201 without a body", rawserver.Answer(http.StatusCreated, "application/json", nil)},
	}
	refused := rawserver.Handler(rawserver.Unauthorized)
	up.Handle(refused)
	w.approve(mine, "stalled", up, 0)
	w.apply(w.cluster(mine, "stalled", up))
	w.answers(mine, "stalled", http.StatusServiceUnavailable, notReady+"FrontProxyNotTrusted")
	w.ready("stalled", "False/FrontProxyNotTrusted")
	for _, s := range stalls {
		up.Handle(s.h)
		// Requests have it asked once a second.
		w.stays(mine, "stalled", http.StatusServiceUnavailable, notReady+"FrontProxyNotTrusted", 1500*time.Millisecond)
	}
	if got := hub.Condition(w.hub.Cluster(w, mine, "stalled").Status, "Ready"); got != "False/FrontProxyNotTrusted" {
		w.Errorf("Ready is %s", got)
	}
	// Another set and back again forgets the refusal, and opens nothing.
	for i, s := range stalls {
		up.Handle(s.h)
		c := w.cluster(mine, "stalled", up)
		p := fmt.Sprintf("turn-%d:", i)
		c.Spec.UpstreamAuth.UserPrefix = &p
		w.apply(c)
		for _, object := range []*v1.ProxyKubeApi{c, w.cluster(mine, "stalled", up)} {
			w.apply(object)
			start := time.Now()
			r := w.ask(mine, "stalled")
			if took := time.Since(start); r.Code != http.StatusServiceUnavailable || took > ownCheck+slack {
				w.Errorf("%s: %d %q after %v", s.name, r.Code, r.Status.Message, took)
			}
		}
	}
	for _, r := range up.AllRequests() {
		if !r.Probe {
			w.Errorf("%v passed", r)
		}
	}
	up.Handle(nil)
	w.answers(mine, "stalled", http.StatusCreated, "")
}

// TRUST-1: the apiserver chooses the text about the user that it saw. The status
// has it with a bounded length, on one line.
func lying(w *world) {
	up := rawserver.Start(w, rawserver.Options{Bare: true})
	name := strings.Repeat("\u202e\"\n\x1b[31mé", 4000)
	up.Handle(func(rw *rawserver.Writer, r *rawserver.Request) {
		review := authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: name, Groups: []string{name}}}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "SelfSubjectReview"
		rw.JSON(http.StatusCreated, review)
	})
	w.approve(mine, "lying", up, 0)
	w.apply(w.cluster(mine, "lying", up))
	w.answers(mine, "lying", http.StatusServiceUnavailable, notReady+"UpstreamIdentityNotHonoured")
	message := w.ready("lying", "False/UpstreamIdentityNotHonoured")
	if n := utf8.RuneCountInString(message); n > 256 || strings.ContainsFunc(message, func(r rune) bool { return !unicode.IsPrint(r) }) {
		w.Errorf("%d characters: %q", n, message)
	}
}

// hole accepts connections and says nothing.
func (w *world) hole() (url string) {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	})
	w.Cleanup(func() {
		l.Close()
		all.Wait()
		for _, c := range conns {
			c.Close()
		}
	})
	return "https://" + l.Addr().String()
}

const manyClusters = 200

// Two hundred clusters whose apiservers accept and say nothing keep neither the
// requests nor the probes of another tenant waiting.
func crowd(w *world) {
	url := w.hole()
	var objects []any
	for i := range manyClusters {
		s := &rawserver.Server{URL: fmt.Sprintf("%s/%d", url, i), ServerCA: w.steady.ServerCA, FrontProxyCA: w.steady.FrontProxyCA}
		objects = append(objects, w.passthrough(mine, fmt.Sprintf("dead-%d", i), s))
	}
	w.apply(objects...)
	w.hub.WaitStatus(w, mine, "dead-0", "a failed round", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "Reachable") == "False/ConnectFailed" || hub.Condition(s, "Reachable") == "False/TLSFailed"
	})
	w.othersServe()

	up := rawserver.Start(w, rawserver.Options{})
	w.approve(theirs, "new", up, 0)
	w.apply(w.cluster(theirs, "new", up))
	w.within(slack, "the requests of a new cluster of another tenant", func() bool {
		return w.ask(theirs, "new").Code == http.StatusCreated
	})
	w.within(20*time.Second, "the status of a new cluster of another tenant", func() bool {
		s := w.hub.Cluster(w, theirs, "new").Status
		return hub.Condition(s, "Ready") == "True/Serving" && hub.Condition(s, "Reachable") == "True/Answered" && s.UpstreamAuth.Trust == v1.TrustTrusted
	})
	w.tenant.MustRun(w, "delete", "-n", mine, v1.Resource, "--all", "--wait=false")
}
