package node

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// testUninstall checks that no object of the release stays, and that the
// definition and the objects outlive both charts. The Lease, which the
// proxy made, stays: its right to it goes before its pods do.
func (i *installation) testUninstall(t *testing.T) {
	if len(i.labelled(t)) < 10 {
		t.Fatalf("the release has only these objects: %q", i.labelled(t))
	}
	i.helm(t, "uninstall", release, "--namespace", namespace, "--wait")
	i.Eventually(t, "no object of the release is left", func() bool { return len(i.labelled(t)) == 0 })
	i.Eventually(t, "no pod is left", func() bool { return len(i.pods(t)) == 0 })
	i.helm(t, "uninstall", "crds", "--namespace", namespace)
	if s := i.Cluster(t, tenant, "front").Status; !s.Exposed {
		t.Errorf("the status of front is %+v", s)
	}
	i.Admin.MustRun(t, "get", "crd", v1.Resource+"."+v1.GroupName)
}

// labelled are all objects, of every kind and in all namespaces, with the label of
// the release, and Helm's own record of it.
func (i *installation) labelled(t *testing.T) []string {
	t.Helper()
	kinds := strings.Fields(i.Admin.MustRun(t, "api-resources", "--verbs=list", "--output=name").Stdout)
	// Events come and go by themselves.
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return strings.HasPrefix(kind, "events") })
	all := strings.Join(kinds, ",")
	found := i.Admin.MustRun(t, "get", all, "--all-namespaces", "--output=name", "--selector=app.kubernetes.io/instance="+release).Stdout
	found += i.Admin.MustRun(t, "get", "secrets", "--all-namespaces", "--output=name", "--selector=owner=helm,name="+release).Stdout
	return strings.Fields(found)
}
