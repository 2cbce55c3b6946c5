package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// leaseHub answers for one Lease.
type leaseHub struct {
	// read is the answer to a GET, or an error.
	read func() (*coordinationv1.Lease, error)
	// write is the error that a POST or PUT is answered with.
	write error
}

func (h leaseHub) RoundTrip(r *http.Request) (*http.Response, error) {
	var lease *coordinationv1.Lease
	var err error
	if r.Method == http.MethodGet {
		lease, err = h.read()
	} else if err = h.write; err == nil {
		lease, err = sentLease(r)
	}
	var refused *apierrors.StatusError
	switch {
	case errors.As(err, &refused):
		return answerOf(int(refused.ErrStatus.Code), refused.ErrStatus)
	case err != nil:
		return nil, err
	}
	return answerOf(http.StatusOK, lease)
}

// sentLease is the Lease of a request, which is written in protobuf.
func sentLease(r *http.Request) (*coordinationv1.Lease, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	lease := object.(*coordinationv1.Lease)
	lease.TypeMeta = leaseType
	return lease, nil
}

func answerOf(code int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
	}, nil
}

var leaseType = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}

func leaseOf(holder string, renewed time.Time) *coordinationv1.Lease {
	seconds, at := int32(15), metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		TypeMeta: leaseType, ObjectMeta: metav1.ObjectMeta{Namespace: "proxyauth", Name: "proxyauthk8s"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at, AcquireTime: &at},
	}
}

func newTestElector(t *testing.T, hub http.RoundTripper) *Elector {
	t.Helper()
	e, err := NewElector(ElectorOptions{
		Config:    &rest.Config{Host: "https://hub.example", Transport: hub},
		Namespace: "proxyauth", Lease: "proxyauthk8s", Identity: "me", Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// REC-2, TRUST-1: an election is alive while a replica renews the Lease. An answer
// of the hub alone does not make it so.
func TestElectionRenewed(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	forbidden := apierrors.NewForbidden(leases, "proxyauthk8s", errors.New("no right"))
	missing := apierrors.NewNotFound(leases, "proxyauthk8s")
	fails := func(err error) func() (*coordinationv1.Lease, error) {
		return func() (*coordinationv1.Lease, error) { return nil, err }
	}
	stands := func(holder string) func() (*coordinationv1.Lease, error) {
		return func() (*coordinationv1.Lease, error) { return leaseOf(holder, time.Unix(1, 0)), nil }
	}
	for name, tt := range map[string]struct {
		hub          leaseHub
		alive, leads bool
	}{
		"every request is refused":            {hub: leaseHub{fails(forbidden), forbidden}},
		"no Lease, and none may be made":      {hub: leaseHub{fails(missing), forbidden}},
		"no namespace":                        {hub: leaseHub{fails(missing), missing}},
		"nobody may renew that of a dead one": {hub: leaseHub{stands("other"), forbidden}},
		"nobody may take that without holder": {hub: leaseHub{stands(""), forbidden}},
		"every renewal comes too late":        {hub: leaseHub{stands("other"), apierrors.NewConflict(leases, "proxyauthk8s", errors.New("changed"))}},
		"the hub is away":                     {hub: leaseHub{fails(io.ErrUnexpectedEOF), io.ErrUnexpectedEOF}},
		"this one makes and renews it":        {hub: leaseHub{fails(missing), nil}, alive: true, leads: true},
		"this one takes that of a dead one":   {hub: leaseHub{stands("other"), nil}, alive: true, leads: true},
		"another renews it": {alive: true, hub: leaseHub{func() (*coordinationv1.Lease, error) {
			return leaseOf("other", time.Now()), nil
		}, forbidden}},
		"a client writes a Lease without holder": {hub: leaseHub{func() (*coordinationv1.Lease, error) {
			return leaseOf("", time.Now()), nil
		}, forbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newTestElector(t, tt.hub)
				ctx, cancel := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() {
					if err := e.Run(ctx, func() {}); err != nil {
						t.Error(err)
					}
				})
				defer done.Wait()
				defer cancel()
				time.Sleep(time.Minute)
				age := time.Since(e.Renewed())
				if alive := age < 3*retryPeriod; alive != tt.alive || !alive && age != time.Minute || e.Leading() != tt.leads {
					t.Errorf("renewed %v ago, leads: %v", age, e.Leading())
				}
			})
		})
	}
}

// REC-2: how long ago the Lease was renewed does not depend on a clock that is
// set meanwhile.
func TestElectionRenewedIsMonotonic(t *testing.T) {
	e := newTestElector(t, leaseHub{})
	monotonic := func(what string) {
		t.Helper()
		if text := e.Renewed().String(); !strings.Contains(text, " m=") {
			t.Errorf("%s: %s has no monotonic reading", what, text)
		}
	}
	monotonic("at first")
	before := e.Renewed()
	if err := e.lock.wrote(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	monotonic("after a renewal")
	if !e.Renewed().After(before) {
		t.Error("a renewal is not seen")
	}
}
