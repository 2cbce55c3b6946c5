//go:build long

package node

import (
	"fmt"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// aggregated is Kubernetes' own example of an aggregated API server, in a pod. It
// is on the network of the node, where etcd is.
const aggregated = `
apiVersion: v1
kind: Namespace
metadata: {name: wardle}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: apiserver, namespace: wardle}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wardle}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: apiserver, namespace: wardle}]
---
apiVersion: v1
kind: Pod
metadata: {name: apiserver, namespace: wardle, labels: {app: apiserver}}
spec:
  serviceAccountName: apiserver
  terminationGracePeriodSeconds: 1
  hostNetwork: true
  containers:
  - name: main
    image: wardle:test
    imagePullPolicy: Never
    args: [--etcd-servers=%s, --secure-port=8443, --cert-dir=/tmp]
    readinessProbe: {httpGet: {scheme: HTTPS, port: 8443, path: /readyz}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: wardle}
spec:
  selector: {app: apiserver}
  ports: [{port: 443, targetPort: 8443}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1alpha1.wardle.example.com}
spec:
  group: wardle.example.com
  version: v1alpha1
  groupPriorityMinimum: 1000
  versionPriority: 15
  insecureSkipTLSVerify: true
  service: {name: api, namespace: wardle}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flunders}
rules: [{apiGroups: [wardle.example.com], resources: [flunders], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: flunders, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flunders}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "proxyauth:équipe"}]
`

const flunder = `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"%s","labels":{"made":"yes"}}}`

// testAggregated uses an API that another server behind the apiserver has. That
// server takes the user from the apiserver, and asks it what the user may do: what
// the proxy forwards arrives there, groups included (ID-1, RELAY-2).
func testAggregated(t *testing.T, b *busy) {
	b.node.LoadImage(t, node.Image{
		Name: "wardle:test", Files: map[string]string{"/usr/bin/apiserver": realtools.Need(t, realtools.SampleAPIServer)},
		Entrypoint: []string{"/usr/bin/apiserver"},
	})
	b.node.MustApply(t, fmt.Sprintf(aggregated, b.node.API.EtcdURL()))
	admin := b.node.Kubectl(t)
	admin.MustRun(t, "wait", "--for=condition=Available", "apiservice/v1alpha1.wardle.example.com", "--timeout=120s")
	for n, c := range b.clients(t) {
		t.Run(c.name, func(t *testing.T) {
			reader := c.Kubectl
			reader.Kubeconfig = writeKubeconfig(t, kube.Access{Server: c.url, CA: b.px.CA.PEM, Token: b.idp.Token(oidc.Elodie, nil)})
			watch := reader.MustStart(t, "get", "flunders", "--watch", "--output-watch-events", "--output=jsonpath={.type} {.object.metadata.name} {.object.metadata.labels.made}{\"\\n\"}")
			name := fmt.Sprintf("flunder-%d", n)
			k := c.Kubectl
			k.Stdin = fmt.Appendf(nil, flunder, name)
			k.MustRun(t, "apply", "--server-side", "--filename=-")
			watch.MustLine(t, "ADDED "+name+" yes")
			k.MustRun(t, "label", "flunder", name, "made=again", "--overwrite")
			watch.MustLine(t, "MODIFIED "+name+" again")
			if got := reader.MustRun(t, "get", "flunders").Stdout; !strings.Contains(got, name) {
				t.Errorf("a table: %q", got)
			}
			r := reader.MustEnd(t, "delete", "flunder", name)
			if r.ExitCode != 1 || !strings.Contains(r.Stderr, `User "proxyauth:élodie" cannot delete resource "flunders"`) {
				t.Errorf("a refusal: %+v", r)
			}
			k.MustRun(t, "delete", "flunder", name)
			watch.MustLine(t, "DELETED "+name)
		})
	}
	// It is the other server that asked what the user may do.
	b.node.API.MustAudit(t, func(e *auditv1.Event) bool {
		return e.User.Username == "system:serviceaccount:wardle:apiserver" && e.ObjectRef != nil && e.ObjectRef.Resource == "subjectaccessreviews"
	})
}
