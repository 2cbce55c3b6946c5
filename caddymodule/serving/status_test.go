package serving

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// A directory has no status to read: the last one is remembered, so that its times
// move only when something changes, until the object is gone.
func TestStatusesKeepTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTestRuntime(newTestProcess())
		if _, synced := rt.Statuses(); synced {
			t.Error("statuses before the first list")
		}
		ready := func(reason string) {
			var all []*Cluster
			for _, name := range []string{"b", "a"} {
				all = append(all, rt.assemble(&k8swatch.Cluster{
					Key:   k8swatch.Key{Namespace: "team-a", Name: name},
					Ready: k8swatch.Condition{Type: k8swatch.ConditionReady, Status: k8swatch.StatusFalse, Reason: reason},
				}, nil))
			}
			rt.put(all...)
		}
		since := func() time.Time {
			t.Helper()
			list, _ := rt.Statuses()
			if len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" {
				t.Fatalf("%+v", list)
			}
			for _, c := range list[0].Status.Conditions {
				if c.Type == k8swatch.ConditionReady {
					return c.LastTransitionTime.Time
				}
			}
			t.Fatal("no Ready")
			return time.Time{}
		}
		ready(k8swatch.ReasonDisabled)
		first := since()
		time.Sleep(time.Hour)
		if ready(k8swatch.ReasonDisabled); !since().Equal(first) {
			t.Error("the time moved")
		}
		rt.statuses.forget(k8swatch.Key{Namespace: "team-a", Name: "a"})
		if !since().After(first) {
			t.Error("the time of another object stays")
		}
	})
}

// A directory has no Events: the log tells of a cluster that stops or begins to
// serve, and of no other change.
func TestLogReady(t *testing.T) {
	cluster := func(status, reason string) *Cluster {
		return &Cluster{Spec: &k8swatch.Cluster{Ready: k8swatch.Condition{Status: status, Reason: reason}}}
	}
	serves := cluster(k8swatch.StatusTrue, k8swatch.ReasonServing)
	missing := cluster(k8swatch.StatusFalse, k8swatch.ReasonClientCertMissing)
	disabled := cluster(k8swatch.StatusFalse, k8swatch.ReasonDisabled)
	for name, tt := range map[string]struct {
		before, after *Cluster
		want          string // the level, empty for no line
	}{
		"new and serving":      {nil, serves, ""},
		"new and not ready":    {nil, missing, "warn"},
		"the same":             {missing, missing, ""},
		"it stops":             {serves, missing, "warn"},
		"it is disabled":       {serves, disabled, "info"},
		"it serves":            {missing, serves, "info"},
		"for another reason":   {missing, disabled, "info"},
		"new and disabled too": {nil, disabled, "info"},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zapcore.InfoLevel)
			(&Runtime{logger: zap.New(core)}).logReady(tt.before, tt.after)
			got := ""
			if logs.Len() > 0 {
				got = logs.All()[0].Level.String()
			}
			if got != tt.want {
				t.Errorf("level %q, want %q", got, tt.want)
			}
		})
	}
}
