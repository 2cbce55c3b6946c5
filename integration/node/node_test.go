package node

import "testing"

func TestNode(t *testing.T) {
	n := Start(t, Options{})
	n.MustApply(t, `
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  containers:
  - {name: main, image: "busybox:test", imagePullPolicy: Never, command: [sh, -c, "sleep 1000"]}
`)
	k := n.Kubectl(t)
	k.MustRun(t, "wait", "--for=condition=Ready", "pod/first", "--timeout=60s")
	t.Log(k.MustRun(t, "get", "pods", "-o", "wide").Stdout)
	t.Log(k.MustRun(t, "exec", "first", "--", "sh", "-c", "nslookup kubernetes.default.svc; wget -O- --no-check-certificate https://kubernetes.default.svc/version; ip a; cat /etc/resolv.conf").Stdout)
}
