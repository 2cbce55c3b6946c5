//go:build long

package clients

import (
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
)

// RELAY-1, RELAY-2, URL-1: clients of others do through the proxy what they do
// directly.
func TestLongClients(t *testing.T) {
	clients := []struct {
		name string
		// test fails when the client does not do what it should.
		test func(*testing.T, access)
	}{
		{"client-node", testJavaScript},
		{"python", testPython},
		{"helm", testHelm},
		{"kustomize", testKustomize},
		{"stern", testStern},
		{"k9s", testK9s},
		{"controller-runtime", testManager},
	}
	n := node.Start(t, node.Options{})
	all := ways(t, n)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			for _, a := range all {
				t.Run(a.name, func(t *testing.T) {
					start := time.Now()
					c.test(t, a)
					t.Logf("took %s", time.Since(start).Round(100*time.Millisecond))
				})
			}
		})
	}
}
