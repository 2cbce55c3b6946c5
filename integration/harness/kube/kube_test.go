package kube

import (
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func TestCluster(t *testing.T) {
	start := time.Now()
	a := Start(t, Options{})
	t.Logf("etcd and kube-apiserver ready in %s", time.Since(start).Round(10*time.Millisecond))
	k := a.Kubectl(t, "")

	t.Run("kubectl reports its version", func(t *testing.T) {
		out := k.MustRun(t, "version").Stdout
		if strings.Count(out, "v1.37.2") != 2 {
			t.Errorf("client and server version:\n%s", out)
		}
	})
	t.Run("view allows reading", func(t *testing.T) {
		k.MustRun(t, "create", "clusterrolebinding", "readers", "--clusterrole=view", "--user=reader")
		deadline := time.Now().Add(5 * time.Second)
		for {
			r := k.MustEnd(t, "auth", "can-i", "list", "pods", "--as=reader")
			if strings.TrimSpace(r.Stdout) == "yes" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v", r)
			}
		}
		if r := k.MustEnd(t, "auth", "can-i", "list", "secrets", "--as=reader"); r.ExitCode != 1 {
			t.Errorf("a reader of secrets: %+v", r)
		}
		events := a.MustAudit(t, func(e *auditv1.Event) bool {
			return e.ImpersonatedUser != nil && e.ImpersonatedUser.Username == "reader"
		})
		if e := events[0]; e.User.Username != "admin" || e.Level != auditv1.LevelMetadata || e.Stage != auditv1.StageResponseComplete {
			t.Errorf("audit event: %+v", e)
		}
	})
	t.Run("a failing command is a result", func(t *testing.T) {
		r := k.MustEnd(t, "get", "pod", "none")
		if r.ExitCode != 1 || !strings.Contains(r.Stderr, "NotFound") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("down and up again", func(t *testing.T) {
		a.Suspend()
		if r := k.MustEnd(t, "get", "--raw", "/version"); r.ExitCode == 0 {
			t.Fatal("a stopped apiserver answers")
		}
		if err := a.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.MustRun(t, "get", "clusterrolebinding", "readers")
	})
}
