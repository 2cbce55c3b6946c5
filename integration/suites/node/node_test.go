package node

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// workload is a Deployment behind a Service and a headless one, a pod to ask
// from, and one on the network of the node.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: busybox:test
        imagePullPolicy: Never
        command: [sh, -c, "mkdir /tmp/www && hostname >/tmp/www/name && exec httpd -f -p 8080 -h /tmp/www"]
        ports: [{name: http, containerPort: 8080}]
        startupProbe: {httpGet: {path: /name, port: http}, periodSeconds: 1}
        readinessProbe: {httpGet: {path: /name, port: http}, periodSeconds: 1}
        livenessProbe: {tcpSocket: {port: http}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: v1
kind: Service
metadata: {name: web-headless}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{port: 8080}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: web}}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "busybox:test", imagePullPolicy: Never, command: [sleep, "1000000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: on-host}
spec:
  terminationGracePeriodSeconds: 1
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  containers: [{name: main, image: "busybox:test", imagePullPolicy: Never, command: [sleep, "1000000"]}]
`

// TestNode runs all that needs a node on one, and looks for what that leaves on
// the machine.
func TestNode(t *testing.T) {
	before := observe(t)
	var inside machine
	t.Run("running", func(t *testing.T) {
		n := node.Start(t, node.Options{})
		t.Run("node", func(t *testing.T) { testNode(t, n) })
		inside = observeNode(t, n)
		t.Run("streams", func(t *testing.T) { testStreams(t, n) })
		t.Run("charts", func(t *testing.T) { testCharts(t, n) })
	})
	if len(inside.processes) == 0 {
		return // skipped, or not started
	}
	t.Run("nothing is left", func(t *testing.T) { before.mustBeAll(t, inside) })
}

func testNode(t *testing.T, n *node.Node) {
	k := n.Kubectl(t)
	n.MustApply(t, workload)
	t.Run("deployment", func(t *testing.T) {
		k.MustRun(t, "rollout", "status", "deployment/web", "--timeout=120s")
		k.MustRun(t, "wait", "--for=condition=Ready", "pod/client", "pod/on-host", "--timeout=120s")
		k.MustRun(t, "wait", "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/web", "--timeout=60s")
	})
	t.Run("addresses", func(t *testing.T) {
		for pod, prefix := range map[string]string{"client": "10.244.0.", "on-host": node.Address} {
			if ip := k.MustRun(t, "get", "pod", pod, "--output=jsonpath={.status.podIP}").Stdout; !strings.HasPrefix(ip, prefix) {
				t.Errorf("%s has the address %s", pod, ip)
			}
		}
	})
	t.Run("services", func(t *testing.T) { testServices(t, k) })
	t.Run("service account", func(t *testing.T) { testServiceAccount(t, n) })
	t.Run("streams", func(t *testing.T) {
		streamtest.Apply(t, n)
		streamtest.Run(t, n, n.Kubectl(t), "admin")
	})
	t.Run("rollout restart", func(t *testing.T) {
		old := pods(t, k)
		k.MustRun(t, "rollout", "restart", "deployment/web")
		k.MustRun(t, "rollout", "status", "deployment/web", "--timeout=120s")
		for _, name := range pods(t, k) {
			if slices.Contains(old, name) {
				t.Errorf("pod %s is still there", name)
			}
		}
	})
	t.Run("apiserver away", func(t *testing.T) { testSuspend(t, n) })
	t.Run("helm", func(t *testing.T) {
		if r := n.Helm(t, "list", "--all-namespaces"); r.ExitCode != 0 || !strings.HasPrefix(r.Stdout, "NAME") {
			t.Errorf("helm list: %+v", r)
		}
	})
	k.MustRun(t, "scale", "deployment/web", "--replicas=1") // room for what follows
}

// testSuspend checks that a node lives through an apiserver that is down, and
// starts pods afterwards.
func testSuspend(t *testing.T, n *node.Node) {
	k := n.Kubectl(t)
	n.API.Suspend()
	if r := k.MustEnd(t, "get", "pods"); r.ExitCode == 0 {
		t.Errorf("the apiserver answers: %+v", r)
	}
	if err := n.API.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.MustRun(t, "scale", "deployment/web", "--replicas=3")
	k.MustRun(t, "rollout", "status", "deployment/web", "--timeout=120s")
}

// pods are those of the Deployment that are not being deleted.
func pods(t *testing.T, k kube.Kubectl) []string {
	t.Helper()
	const format = `--output=go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}`
	names := strings.Fields(k.MustRun(t, "get", "pods", "--selector=app=web", format).Stdout)
	if len(names) != 2 {
		t.Fatalf("the Deployment has the pods %q", names)
	}
	return names
}

// testServices asks both replicas, by each kind of name and from both kinds of
// network.
func testServices(t *testing.T, k kube.Kubectl) {
	want := pods(t, k)
	slices.Sort(want)
	for _, from := range []string{"client", "on-host"} {
		for _, url := range []string{"http://web/name", "http://web.default.svc/name", "http://web.default.svc.cluster.local/name"} {
			seen := map[string]bool{}
			// Which replica answers is chance.
			for deadline := time.Now().Add(time.Minute); len(seen) < 2 && time.Now().Before(deadline); {
				seen[strings.TrimSpace(k.MustRun(t, "exec", from, "--", "fetch", url).Stdout)] = true
			}
			for _, name := range want {
				if !seen[name] {
					t.Errorf("from %s %s was answered by %v, not by %s", from, url, seen, name)
				}
			}
		}
	}
	answer := k.MustRun(t, "exec", "client", "--", "nslookup", "web-headless.default.svc.cluster.local").Stdout
	for _, ip := range strings.Fields(k.MustRun(t, "get", "pods", "--selector=app=web", "--output=jsonpath={.items[*].status.podIP}").Stdout) {
		if !strings.Contains(answer, ip+"\n") {
			t.Errorf("the headless Service has no %s: %s", ip, answer)
		}
	}
	if r := k.MustEnd(t, "exec", "client", "--", "fetch", "http://absent.default.svc/"); r.ExitCode == 0 || !strings.Contains(r.Stderr, "no such host") {
		t.Errorf("an absent Service: %+v", r)
	}
}

// testServiceAccount has a pod of an image made here, which runs as another
// user with nothing allowed, call the apiserver with the token that it was
// given.
func testServiceAccount(t *testing.T, n *node.Node) {
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "fetch")
	if err := node.BuildStatic(t.Context(), filepath.Join(root, "integration"), "./harness/node/fetch", binary); err != nil {
		t.Fatal(err)
	}
	n.LoadImage(t, node.Image{
		Name: "asker:test", Files: map[string]string{"/usr/bin/fetch": binary},
		Entrypoint: []string{
			"/usr/bin/fetch", "-account", "-data", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`,
			"https://kubernetes.default.svc" + kube.ReviewPath,
		},
		User: "65532:65532",
	})
	n.MustApply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: asker}
---
apiVersion: v1
kind: Pod
metadata: {name: asker}
spec:
  serviceAccountName: asker
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: main
    image: asker:test
    imagePullPolicy: Never
    securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`)
	k := n.Kubectl(t)
	k.MustRun(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/asker", "--timeout=60s")
	out := k.MustRun(t, "logs", "asker").Stdout
	var answer authenticationv1.SelfSubjectReview
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := answer.Status.UserInfo.Username; got != "system:serviceaccount:default:asker" {
		t.Errorf("the pod is %q", got)
	}
}
