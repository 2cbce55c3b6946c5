package kube

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
)

// Start is StartAPIServer for a test, which ends with it.
func Start(tb testing.TB, o Options) *APIServer {
	tb.Helper()
	a, err := StartAPIServer(tb.Context(), tb.TempDir(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("last lines of %s:\n%s", a.URL, a.proc.LogTail(15))
		}
		a.Stop()
	})
	return a
}

// StartSharedEtcd is StartEtcd for a test, for several apiservers.
func StartSharedEtcd(tb testing.TB) *Etcd {
	tb.Helper()
	e, err := StartEtcd(tb.Context(), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Stop)
	return e
}

// Kubectl is a kubectl with that kubeconfig (empty: the administrator's) and a
// fresh home.
func (a *APIServer) Kubectl(tb testing.TB, kubeconfig string) Kubectl {
	if kubeconfig == "" {
		kubeconfig = a.Kubeconfig
	}
	return Kubectl{Kubeconfig: kubeconfig, Home: filepath.Join(tb.TempDir(), "home"), Namespaces: a.namespaces}
}

// MustRun runs a command that has to end with exit code 0.
func (k Kubectl) MustRun(tb testing.TB, args ...string) Result {
	tb.Helper()
	r := k.MustEnd(tb, args...)
	if r.ExitCode != 0 {
		tb.Fatalf("%s %q: exit code %d\n%s%s", k.tool().Name, args, r.ExitCode, r.Stdout, r.Stderr)
	}
	return r
}

// MustEstablish waits up to a minute until CustomResourceDefinitions are served;
// "--all" means all there are. kubectl itself gives up on one that is so new that
// it has no conditions yet.
func (k Kubectl) MustEstablish(tb testing.TB, names ...string) {
	tb.Helper()
	args := append([]string{"wait", "--for=condition=Established", "--timeout=60s", "crd"}, names...)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := k.MustEnd(tb, args...)
		switch {
		case r.ExitCode == 0:
			return
		case !strings.Contains(r.Stderr, "conditions accessor error") || time.Now().After(deadline):
			tb.Fatalf("kubectl %q: exit code %d\n%s%s", args, r.ExitCode, r.Stdout, r.Stderr)
		}
	}
}

// MustEnd runs a command to its end, whatever its exit code.
func (k Kubectl) MustEnd(tb testing.TB, args ...string) Result {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	r, err := k.Run(ctx, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// MustAudit waits up to ten seconds for matching audit events.
func (a *APIServer) MustAudit(tb testing.TB, match func(*auditv1.Event) bool) []auditv1.Event {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	events, err := a.WaitAudit(ctx, match)
	if err != nil {
		tb.Fatal(err)
	}
	return events
}

// MustAggregate fills in the ClusterRoles that aggregate others, as the
// controller manager does whenever one comes: start did it for those of the
// apiserver.
func (a *APIServer) MustAggregate(tb testing.TB) {
	tb.Helper()
	client, err := rbacclient.NewForConfig(a.AdminConfig())
	if err != nil {
		tb.Fatal(err)
	}
	if err := aggregate(tb.Context(), client); err != nil {
		tb.Fatal(err)
	}
}

// MustWhoAmI is WhoAmI for a test.
func MustWhoAmI(tb testing.TB, client *http.Client, base string, header http.Header) *Review {
	tb.Helper()
	r, err := WhoAmI(tb.Context(), client, base, header)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// MustAllow waits until the authorizer allows something to a user: a binding
// takes effect a moment after it was made.
func (a *APIServer) MustAllow(tb testing.TB, user string, groups []string, what authorizationv1.ResourceAttributes) {
	tb.Helper()
	client, err := authorizationclient.NewForConfig(a.AdminConfig())
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for {
		review, err := client.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &what},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waiting until %s may do %+v: %v (last: %v)", user, what, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
