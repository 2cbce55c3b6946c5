package status

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

const own, other = "proxyauth/proxyauthk8s", "standby/proxyauthk8s"

func by(installation, reason string) *v1.ProxyKubeApiStatus {
	s := ready("False", reason)
	s.ObservedBy = installation
	return s
}

// REC-8: the status of another installation stands while it is young, and one
// Event tells of it. One that grew old, or that nobody signed, is replaced.
func TestStatusOfAnotherInstallation(t *testing.T) {
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() {
			w.status = by(own, k8swatch.ReasonClientCertMissing)
			w.put(by(other, k8swatch.ReasonInvalidSpec), "proxyauthk8s")
		})
		w.EnqueueAll()
		w.settle(0, 1)
		if e := w.events[0]; !strings.Contains(e, "ObservedByAnother") || !strings.Contains(e, other) || !strings.Contains(e, "object_selector") {
			t.Errorf("event %s", e)
		}
		for range 10 {
			time.Sleep(leftAlone / 2)
			w.locked(func() { w.put(by(other, k8swatch.ReasonInvalidSpec), "proxyauthk8s") })
			w.Enqueue(k8stest.Key)
			w.settle(0, 1)
		}
		time.Sleep(leftAlone + time.Minute) // without being named again
		w.settle(1, 2)
		w.locked(func() { w.put(by("", k8swatch.ReasonInvalidSpec), "old") })
		w.Enqueue(k8stest.Key)
		time.Sleep(time.Second)
		w.settle(2, 2) // the third Event is the second once more
	})
}

// REC-8: the times of managedFields can be set by whoever may write the object. One
// that has not come yet does not keep a status for ever; a hub whose clock is a
// little ahead is believed.
func TestStatusOfAnotherInstallationInTheFuture(t *testing.T) {
	tests := []struct {
		name  string
		ahead time.Duration
	}{
		{"the clock of the hub", clocksDiffer},
		{"a forged time", 1000 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWriting(t, func(t *testing.T, w *writing) {
				w.locked(func() {
					w.status = by(own, k8swatch.ReasonClientCertMissing)
					w.put(by(other, k8swatch.ReasonInvalidSpec), "x")
					at := metav1.NewTime(time.Now().Add(tt.ahead))
					w.object.ManagedFields[0].Time = &at
				})
				w.EnqueueAll()
				time.Sleep(time.Second)
				if patches, _ := w.counts(); tt.ahead <= clocksDiffer && patches > 0 {
					t.Error("the status of another installation was overwritten at once")
				}
				time.Sleep(time.Hour)
				if patches, _ := w.counts(); patches != 1 {
					t.Errorf("%d writes within an hour, want one", patches)
				}
			})
		})
	}
}

// REC-8: against a program that overwrites each status the proxy writes a bounded
// number, and tells so once. When the other one gives up, the status is right again
// within a minute, and the next change is written at once.
func TestStatusThatAnotherProgramOverwrites(t *testing.T) {
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() { w.status = by(own, k8swatch.ReasonClientCertMissing) })
		overwrite := func() {
			w.locked(func() {
				if w.object.Status == w.status {
					w.put(&v1.ProxyKubeApiStatus{Exposed: true}, "weebo\n-operator")
				}
			})
			w.Enqueue(k8stest.Key)
		}
		for range 60 * 60 {
			overwrite()
			time.Sleep(time.Second)
		}
		patches, _ := w.counts()
		if most := 1 + overwritesAtOnce + 60; patches > most || patches < most-5 {
			t.Errorf("%d writes in an hour, want about %d", patches, most)
		}
		told := 0
		for _, e := range w.events {
			if strings.Contains(e, "ObservedByAnother") {
				told++
				if !strings.Contains(e, `weebo\\n-operator`) {
					t.Errorf("event %s", e)
				}
			}
		}
		if told != 1 {
			t.Errorf("told %d times", told)
		}
		time.Sleep(overwriteEvery + time.Second)
		w.locked(func() {
			if !Same(w.object.Status, w.status) {
				t.Errorf("the status is not right: %+v", w.object.Status)
			}
			w.status = by(own, k8swatch.ReasonServiceNotFound)
		})
		before, _ := w.counts()
		w.Enqueue(k8stest.Key)
		time.Sleep(betweenWrites)
		if after, _ := w.counts(); after != before+1 {
			t.Errorf("%d writes of a change", after-before)
		}
	})
}

// A hub whose CRD is older than the proxy drops fields of the status: what it keeps
// is written once.
func TestHubThatDropsFields(t *testing.T) {
	inWriting(t, func(t *testing.T, w *writing) {
		w.locked(func() {
			w.status, w.keeps = by(own, k8swatch.ReasonClientCertMissing), by("", k8swatch.ReasonClientCertMissing)
		})
		for range 5 {
			w.Enqueue(k8stest.Key)
			w.settle(1, 1)
			time.Sleep(time.Second)
		}
		w.locked(func() {
			w.status, w.keeps = by(own, k8swatch.ReasonServiceNotFound), by("", k8swatch.ReasonServiceNotFound)
		})
		w.Enqueue(k8stest.Key)
		w.settle(2, 2)
	})
}

// A version of the object that is older than the last write is no program that
// overwrites it.
func TestOlderVersionsAreNotOverwrites(t *testing.T) {
	w := &written{over: "7", made: "12", status: by(own, "x"), kept: by("", "x")}
	for version, overwritten := range map[string]bool{"7": false, "9": false, "11": false, "12": true, "100": true, "odd": true} {
		object := &v1.ProxyKubeApi{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
		if got := w.overwritten(object); got != overwritten {
			t.Errorf("version %s: overwritten %t", version, got)
		}
		object.Status = w.kept
		if w.overwritten(object) {
			t.Errorf("version %s: its own status is another's", version)
		}
	}
	if (&written{}).overwritten(new(v1.ProxyKubeApi)) {
		t.Error("nothing was written")
	}
}
