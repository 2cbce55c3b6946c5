package charts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// rights are the verbs by "<namespace> <group>/<resource>[ <name>]" that the
// bindings give to the proxy's account; the namespace is * where it is any.
func rights(t *testing.T, objects []runtime.Object, account string) map[string]string {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range all[*rbacv1.ClusterRole](objects) {
		if len(r.Labels) == 0 || r.AggregationRule != nil {
			t.Errorf("ClusterRole %s: %+v", r.Name, r.ObjectMeta)
		}
		rules["ClusterRole *"+r.Name] = r.Rules
	}
	for _, r := range all[*rbacv1.Role](objects) {
		rules["Role "+r.Namespace+r.Name] = r.Rules
	}
	given := map[string]string{}
	give := func(ns string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: namespace}}
		if diff := cmp.Diff(want, subjects); diff != "" {
			t.Errorf("subjects of %s: %s", ref.Name, diff)
		}
		bound, ok := rules[ref.Kind+" "+ns+ref.Name]
		if !ok {
			t.Errorf("a binding in %s names %s %s, which is not there", ns, ref.Kind, ref.Name)
		}
		for _, rule := range bound {
			if len(rule.NonResourceURLs) > 0 {
				t.Errorf("rule %+v", rule)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					key := strings.Join(append([]string{ns + " " + group + "/" + resource}, rule.ResourceNames...), " ")
					given[key] = strings.TrimSpace(given[key] + " " + strings.Join(rule.Verbs, " "))
				}
			}
		}
	}
	for _, b := range all[*rbacv1.ClusterRoleBinding](objects) {
		give("*", b.RoleRef, b.Subjects)
	}
	for _, b := range all[*rbacv1.RoleBinding](objects) {
		give(b.Namespace, b.RoleRef, b.Subjects)
	}
	return given
}

// The rights of CHART-1, and not one more.
func TestRights(t *testing.T) {
	t.Parallel()
	watched := func(ns string) map[string]string {
		return map[string]string{
			ns + " weebo.si.rs/proxykubeapis":        "get list watch",
			ns + " weebo.si.rs/proxykubeapis/status": "update patch",
			ns + " /services":                        "get list watch",
			ns + " /events":                          "create patch",
		}
	}
	references := func(ns string) map[string]string {
		return map[string]string{ns + " /secrets": "get", ns + " /configmaps": "get"}
	}
	// A name cannot limit create. The Lease that a Caddyfile of the user's own
	// names is not known to the chart.
	own := func(lease string) map[string]string {
		rights := map[string]string{"proxyauth /secrets": "get list watch", "proxyauth coordination.k8s.io/leases": "create"}
		if lease == "" {
			rights["proxyauth coordination.k8s.io/leases"] = "create get update"
		} else {
			rights["proxyauth coordination.k8s.io/leases "+lease] = "get update"
		}
		return rights
	}
	storage := map[string]string{
		storageNamespace + " /secrets":                   "get list create patch delete",
		storageNamespace + " coordination.k8s.io/leases": "get create update delete",
	}
	const account = "proxy-proxyauthk8s"
	for set, c := range map[string]struct {
		account string
		want    []map[string]string
	}{
		"default":   {account, []map[string]string{own(account), watched("*"), references("*")}},
		"every":     {"proxy-account", []map[string]string{own("front"), watched("*"), references("*")}},
		"off":       {account, []map[string]string{own(account), watched("*"), references("team-a")}},
		"caddyfile": {account, []map[string]string{own(""), watched("*"), references("team-a")}},
		"acme":      {account, []map[string]string{own(account), watched("*"), references("team-a"), storage}},
		"least":     {account, []map[string]string{own(account), watched("team-a"), watched("team-b"), references("team-a"), references("shared-ca")}},
	} {
		t.Run(set, func(t *testing.T) {
			want := map[string]string{}
			for _, part := range c.want {
				maps.Copy(want, part)
			}
			objects := render(t, chart(t), "--values", valueSets(t)[set])
			if diff := cmp.Diff(want, rights(t, objects, c.account)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The right to write ProxyKubeApi goes to people, and only where it was asked for.
func TestAggregatedRoles(t *testing.T) {
	t.Parallel()
	const label = "rbac.authorization.k8s.io/aggregate-to-"
	found := func(args ...string) []string {
		var roles []string
		for _, r := range all[*rbacv1.ClusterRole](render(t, chart(t), args...)) {
			for _, to := range []string{"view", "edit", "admin"} {
				if r.Labels[label+to] == "true" {
					roles = append(roles, fmt.Sprint(to, r.Rules))
				}
			}
		}
		slices.Sort(roles)
		return roles
	}
	read := []string{"get", "list", "watch"}
	rule := func(verbs ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{"weebo.si.rs"}, Resources: []string{"proxykubeapis"}, Verbs: verbs}}
	}
	view := fmt.Sprint("view", rule(read...))
	edit := fmt.Sprint("edit", rule(append(read, "create", "update", "patch", "delete", "deletecollection")...))
	if diff := cmp.Diff([]string(nil), found()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{view}, found("--set", "rbac.aggregateToView=true")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{edit}, found("--set", "rbac.aggregateToEdit=true")); diff != "" {
		t.Error(diff)
	}
}
