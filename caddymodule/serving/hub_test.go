package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// guardedLease is a hub that refuses everything about the Lease, or lets it be
// read while another replica renews it.
type guardedLease struct{ renewed atomic.Bool }

func (l *guardedLease) RoundTrip(r *http.Request) (*http.Response, error) {
	holder, seconds, now := "other", int32(15), metav1.NewMicroTime(time.Now())
	code, body := http.StatusForbidden, any(apierrors.NewForbidden(coordinationv1.Resource("leases"), "l", nil).Status())
	if l.renewed.Load() && r.Method == http.MethodGet {
		code, body = http.StatusOK, &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "proxyauth", Name: "l"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}
	}
	text, err := json.Marshal(body)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
	}, err
}

// REC-2, TRUST-1: where the hub refuses every renewal of the Lease each replica probes
// for itself, as when it is away, until another one leads.
func TestProbesWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hubSide guardedLease
		elector, err := status.NewElector(status.ElectorOptions{
			Config:    &rest.Config{Host: "https://hub.example", Transport: &hubSide},
			Namespace: "proxyauth", Lease: "l", Identity: "me", Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		rt := newTestRuntime(newTestProcess())
		rt.hub = &hub{election: &election{Elector: elector}}
		rt.inForce.Store(true)
		rt.updateLeadership()
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		defer done.Wait()
		defer cancel()
		done.Go(func() {
			if err := elector.Run(ctx, rt.updateLeadership); err != nil {
				t.Error(err)
			}
		})
		done.Go(func() { rt.watchForLeader(ctx) })
		after := func(wait time.Duration, want bool, what string) {
			t.Helper()
			time.Sleep(wait)
			if rt.prober.Leads() != want || rt.Leading() {
				t.Errorf("%s: probes: %v, leads: %v", what, rt.prober.Leads(), rt.Leading())
			}
		}
		after(leaderlessAfter-time.Second, false, "refused for less than it takes")
		after(10*time.Second, true, "refused for long")
		hubSide.renewed.Store(true)
		after(15*time.Second, false, "another one leads")
		after(5*time.Minute, false, "another one leads for long")
		hubSide.renewed.Store(false)
		after(leaderlessAfter-5*time.Second, false, "refused again")
		after(15*time.Second, true, "refused again for long")
	})
}
