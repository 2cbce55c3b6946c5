package charts

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// account is who the pods of the release are.
const account = "system:serviceaccount:" + namespace + ":" + release + "-proxyauthk8s"

// testRights asks the authorizer of a real apiserver about the account of a
// release (CHART-1).
func (h hub) testRights(t *testing.T) {
	const (
		secrets  = "secrets"
		objects  = "proxykubeapis.weebo.si.rs"
		statuses = "proxykubeapis.weebo.si.rs/status"
		leases   = "leases.coordination.k8s.io"
	)
	never := []string{
		"create " + objects, "update " + objects, "patch " + objects, "delete " + objects, "deletecollection " + objects,
		"create secrets", "update secrets", "patch secrets", "delete secrets", "create pods", "create serviceaccounts/token",
		"escalate clusterroles", "impersonate users", "list configmaps",
	}
	for set, c := range map[string]struct{ may, mayNot map[string][]string }{
		"default": {
			may: map[string][]string{
				namespace: {"get secrets", "list secrets", "watch secrets", "create " + leases, "update " + leases + " " + release + "-proxyauthk8s"},
				"team-c":  {"get secrets", "get configmaps", "watch " + objects, "patch " + statuses, "update " + statuses, "create events", "list services"},
			},
			mayNot: map[string][]string{
				namespace: {"update " + leases + " proxyauthk8s"},
				"team-c":  {"list secrets", "watch secrets", "create " + leases, "get " + leases},
			},
		},
		"least": {
			may: map[string][]string{
				namespace:   {"list secrets", "create " + leases},
				"team-a":    {"get secrets", "get configmaps", "list " + objects, "patch " + statuses, "create events", "watch services"},
				"team-b":    {"list " + objects},
				"shared-ca": {"get secrets", "get configmaps"},
			},
			mayNot: map[string][]string{
				"team-a":    {"list secrets", "watch secrets"},
				"team-b":    {"get secrets", "get configmaps"},
				"team-c":    {"get secrets", "get configmaps", "get " + objects, "patch " + statuses, "get services", "create events"},
				"shared-ca": {"list secrets", "get " + objects},
			},
		},
	} {
		t.Run(set, func(t *testing.T) {
			h.helm.mustRun(t, "install", release, chart(t), "--namespace", namespace, "--values", valueSets(t)[set])
			defer h.helm.mustRun(t, "uninstall", release, "--namespace", namespace)
			for ns, verbs := range c.may {
				for _, v := range verbs {
					h.mustAllow(t, ns, v)
				}
			}
			for ns, verbs := range c.mayNot {
				for _, v := range append(never, verbs...) {
					if h.may(t, ns, v) {
						t.Errorf("it may %s in %s", v, ns)
					}
				}
			}
		})
	}
}

// attributes reads "<verb> <plural>[.<group>][/<subresource>][ <name>]".
func attributes(ns, text string) authorizationv1.ResourceAttributes {
	verb, what, _ := strings.Cut(text, " ")
	what, name, _ := strings.Cut(what, " ")
	what, subresource, _ := strings.Cut(what, "/")
	resource, group, _ := strings.Cut(what, ".")
	return authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name}
}

// mustAllow waits until the release's account may do something.
func (h hub) mustAllow(t *testing.T, ns, text string) {
	t.Helper()
	h.MustAllow(t, account, nil, attributes(ns, text))
}

// may asks whether the release's account may do something now.
func (h hub) may(t *testing.T, ns, text string) bool {
	t.Helper()
	return h.review(t, account, attributes(ns, text))
}

// review asks whether an account may do something now.
func (h hub) review(t *testing.T, account string, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	client, err := authorizationclient.NewForConfig(h.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: account, ResourceAttributes: &what},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}
