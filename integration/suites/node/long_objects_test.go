//go:build long

package node

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// anything is a CustomResourceDefinition without a schema.
const anything = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.test}
spec:
  group: example.test
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// testLargeObjects applies objects on the server. An apiserver takes requests of
// 3 MiB, and its etcd objects of half of that: the larger ones are dry runs
// (LIM-02).
func testLargeObjects(t *testing.T, b *busy, c client) {
	const mebibyte = 1 << 20
	b.node.MustApply(t, anything)
	b.node.Kubectl(t).MustEstablish(t, "things.example.test")
	thing := func(size int, manager string) []byte {
		var object bytes.Buffer
		fmt.Fprintf(&object, `{"apiVersion":"example.test/v1","kind":"Thing","metadata":{"name":"large"},"spec":{"by":%q,"data":"`, manager)
		object.WriteString(strings.Repeat("x", size-object.Len()-3))
		object.WriteString(`"}}`)
		return object.Bytes()
	}
	apply := func(size int, manager string, args ...string) (stdout, stderr string, code int) {
		k := c.Kubectl
		k.Stdin = thing(size, manager)
		r := k.MustEnd(t, append([]string{"apply", "--server-side", "--field-manager=" + manager, "--filename=-"}, args...)...)
		return r.Stdout, r.Stderr, r.ExitCode
	}
	out, stderr, code := apply(29*mebibyte/10, "first", "--dry-run=server", "--output=jsonpath={.spec.data}")
	if code != 0 || len(out) < 28*mebibyte/10 || strings.Trim(out, "x") != "" {
		t.Errorf("2.9 MiB: %d, %d bytes came back: %s", code, len(out), stderr)
	}
	if _, stderr, code := apply(14*mebibyte/10, "first"); code != 0 {
		t.Fatalf("1.4 MiB: %d %s", code, stderr)
	}
	if got := c.MustRun(t, "get", "thing", "large", "--output=jsonpath={.spec.data}").Stdout; len(got) < 13*mebibyte/10 {
		t.Errorf("%d bytes were kept", len(got))
	}
	if _, stderr, code := apply(mebibyte, "second"); code != 1 || !strings.Contains(stderr, "conflict") {
		t.Errorf("the fields of another manager: %d %s", code, stderr)
	}
	if _, stderr, code := apply(mebibyte, "second", "--force-conflicts"); code != 0 {
		t.Errorf("with force: %d %s", code, stderr)
	}
	if _, stderr, code := apply(35*mebibyte/10, "first", "--dry-run=server"); code != 1 || !strings.Contains(stderr, "Request entity too large: limit is 3145728") {
		t.Errorf("3.5 MiB: %d %.300s", code, stderr)
	}
	c.MustRun(t, "delete", "thing", "large")
}
