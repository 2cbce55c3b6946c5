package compile

import (
	"cmp"
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// requiredGroup is the group of ACC-1.
func (b *builder) requiredGroup() string {
	if group := ptr.Deref(b.spec.ProxyGroup, ""); group != "" || !b.spec.ExposeViaDashboard {
		return group
	}
	return b.object.ProxyKubeApi.DashboardGroupOrDefault()
}

// requiresDefaultGroup reports whether an object requires the group that follows from
// its namespace and name.
func requiresDefaultGroup(spec *v1.ProxyKubeApiSpec) bool {
	return spec.ExposeViaDashboard && ptr.Deref(spec.ProxyGroup, "") == "" && spec.DashboardGroup == nil
}

// sharedDefaultGroup refuses the younger of two objects with one default group
// (ACC-1): prod in the namespace team-a and a-prod in team both have
// dashboard-team-a-prod, so the members of either could use both.
func (b *builder) sharedDefaultGroup() []problem {
	if !requiresDefaultGroup(b.spec) {
		return nil
	}
	names := b.key.Namespace + "-" + b.key.Name
	for i, c := range names {
		if c != '-' || i == len(b.key.Namespace) {
			continue
		}
		key := k8swatch.Key{Namespace: names[:i], Name: names[i+1:]}
		other := b.store.Object(key)
		if other == nil || other.ProxyKubeApi == nil || other.Invalid != "" ||
			!requiresDefaultGroup(&other.ProxyKubeApi.Spec) || !older(other.ProxyKubeApi, b.object.ProxyKubeApi) {
			continue
		}
		return []problem{invalid("spec.dashboard_group", fmt.Sprintf(
			"must be set: the default %s is that of the older ProxyKubeApi %s too", b.object.ProxyKubeApi.DashboardGroupOrDefault(), key))}
	}
	return nil
}

// older reports whether a was created before b, and decides in the same way on every
// replica when both were created in one second.
func older(a, b *v1.ProxyKubeApi) bool {
	return cmp.Or(
		cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix()),
		cmp.Compare(a.Namespace, b.Namespace),
	) < 0
}
