package serving

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// heard are events, as `<name> <data>`.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) take(name string, data map[string]any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, fmt.Sprint(name, " ", data))
}

func (h *heard) get() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.all
	h.all = nil
	return all
}

// settle waits until nothing is left to tell.
func (e *Events) settle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		running := e.running
		e.mu.Unlock()
		if !running {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the events do not end")
		}
	}
}

func clusterWith(name, status, reason string) *Cluster {
	spec := &k8swatch.Cluster{
		Key: k8swatch.Key{Namespace: "team-a", Name: name}, Enabled: true, Mode: v1.ModePassthrough,
		Ready: k8swatch.Condition{Type: k8swatch.ConditionReady, Status: status, Reason: reason, Message: "written by the author"},
	}
	return &Cluster{Spec: spec, Trust: trust.New(spec, nil, nil, nil, nil)}
}

// A subscriber hears of each cluster that this process begins or ceases to
// serve, once, and of the leadership.
func TestEvents(t *testing.T) {
	const (
		ready  = "proxyauth.cluster_ready map[cluster:prod namespace:team-a reason:Serving]"
		closed = "proxyauth.cluster_closed map[cluster:prod namespace:team-a reason:%s]"
		leads  = "proxyauth.leader map[leading:%t]"
	)
	open := clusterWith("prod", k8swatch.StatusTrue, "Serving")
	shut := clusterWith("prod", k8swatch.StatusFalse, k8swatch.ReasonInvalidSpec)
	unknown := clusterWith("prod", k8swatch.StatusUnknown, k8swatch.ReasonUpstreamModeUnknown)
	p := newTestProcess()
	rt := newTestRuntime(p)
	var first, second heard
	cancelFirst := p.Events.Subscribe(first.take)
	key := open.Spec.Key
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"before anything is in force", func() { rt.put(open); p.Events.look(key) }, nil},
		{"in force", func() { rt.TakeOver() }, []string{fmt.Sprintf(leads, true), ready}},
		{"again", func() { rt.TakeOver(); p.Events.look(key) }, nil},
		{"closed", func() { rt.put(shut); rt.statusChanged(key) }, []string{fmt.Sprintf(closed, "InvalidSpec")}},
		{"closed for another reason", func() {
			rt.put(clusterWith("prod", k8swatch.StatusFalse, k8swatch.ReasonDisabled))
			rt.statusChanged(key)
		}, nil},
		{"not known while closed", func() { rt.put(unknown); rt.statusChanged(key) }, nil},
		{"ready", func() { rt.put(open); rt.statusChanged(key) }, []string{ready}},
		{"not known any more", func() { rt.put(unknown); rt.statusChanged(key) }, []string{fmt.Sprintf(closed, "UpstreamModeUnknown")}},
		{"back", func() { rt.put(open); rt.statusChanged(key) }, []string{ready}},
		{"removed", func() { rt.put(); p.Events.look(key) }, []string{fmt.Sprintf(closed, "Removed")}},
		{"a new one that is closed", func() { rt.put(shut); p.Events.look(key) }, []string{fmt.Sprintf(closed, "InvalidSpec")}},
		{"a closed one removed", func() { rt.put(); p.Events.look(key) }, nil},
		{"a new one that is not known", func() { rt.put(unknown); p.Events.look(key) }, nil},
		{"known to be closed", func() { rt.put(shut); p.Events.look(key) }, []string{fmt.Sprintf(closed, "InvalidSpec")}},
		{"ready at last", func() { rt.put(open); p.Events.look(key) }, []string{ready}},
	} {
		step.do()
		p.Events.settle(t)
		if diff := cmp.Diff(step.want, first.get()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", step.name, diff)
		}
	}

	// Another runtime takes over, as after a reload with other options: what it
	// serves as well is no news, and the newest configuration hears the rest.
	cancelSecond := p.Events.Subscribe(second.take)
	cancelFirst()
	next := newTestRuntime(p)
	next.put(open, clusterWith("new", k8swatch.StatusTrue, "Serving"))
	next.TakeOver()
	p.Events.settle(t)
	if diff := cmp.Diff([]string{"proxyauth.cluster_ready map[cluster:new namespace:team-a reason:Serving]"}, second.get()); diff != "" {
		t.Errorf("after a reload: -want +got:\n%s", diff)
	}
	next.put()
	next.TakeOver()
	p.Events.settle(t)
	if got := second.get(); len(got) != 2 {
		t.Errorf("two clusters are gone, heard %v", got)
	}
	cancelSecond()
	next.put(open)
	next.TakeOver()
	p.Events.settle(t)
	if got := append(first.get(), second.get()...); got != nil {
		t.Errorf("heard after the end: %v", got)
	}

	// Nothing is in force for a while. What is loaded then hears of everything.
	for _, ended := range []*Runtime{rt, next} {
		p.takeOutOfForce(ended)
	}
	p.Events.look()
	p.Events.settle(t)
	p.Events.Subscribe(first.take)
	next.TakeOver()
	p.Events.settle(t)
	if diff := cmp.Diff([]string{fmt.Sprintf(leads, true), ready}, first.get()); diff != "" {
		t.Errorf("loaded anew: -want +got:\n%s", diff)
	}
}

// A subscriber that takes its time holds up nothing, and hears in the end what
// holds.
func TestSlowSubscriberOfEvents(t *testing.T) {
	p := newTestProcess()
	rt := newTestRuntime(p)
	entered, leave := make(chan string), make(chan struct{})
	p.Events.Subscribe(func(name string, _ map[string]any) {
		entered <- name
		<-leave
	})
	rt.put()
	rt.TakeOver()
	hear := func(want string) {
		t.Helper()
		select {
		case name := <-entered:
			if name != want {
				t.Fatalf("heard %s, want %s", name, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("did not hear %s", want)
		}
	}
	hear(EventLeader)
	key := k8swatch.Key{Namespace: "team-a", Name: "prod"}
	for range 1000 {
		rt.put(clusterWith("prod", k8swatch.StatusFalse, k8swatch.ReasonDisabled))
		rt.statusChanged(key)
		rt.put(clusterWith("prod", k8swatch.StatusTrue, "Serving"))
		rt.statusChanged(key)
	}
	leave <- struct{}{}
	hear(EventClusterReady)
	close(leave)
	p.Events.settle(t)
}
