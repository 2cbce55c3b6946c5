//go:build long

package node

import (
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// TestLongKubectl runs what kubectl does, in quantity, with the pinned and with the
// oldest version, over each form of URL, version of HTTP and protocol of streams.
func TestLongKubectl(t *testing.T) {
	t.Parallel()
	b := startBusy(t)
	streamtest.Apply(t, b.node)
	streamtest.ApplyTerminal(t, b.node)
	for _, c := range b.clients(t) {
		t.Run(c.name, func(t *testing.T) { testClient(t, b, c) })
	}
	t.Run("list", func(t *testing.T) { testList(t, b) })
	t.Run("aggregated API server", func(t *testing.T) { testAggregated(t, b) })
	t.Run("restart of the apiserver", func(t *testing.T) { testRestart(t, b) })
}

// testClient runs all commands of one kubectl (RELAY-2).
func testClient(t *testing.T, b *busy, c client) {
	const mebibyte = 1 << 20
	before := peakMemory(t, b.px.PID())
	streamtest.Run(t, b.node, c.Kubectl, prefix+oidc.Alice)
	for _, p := range streamtest.Protocols {
		t.Run("in quantity, "+p.Name, func(t *testing.T) {
			k := p.With(c.Kubectl)
			t.Run("terminal", func(t *testing.T) { streamtest.Terminal(t, k) })
			t.Run("terminal, attached", func(t *testing.T) { streamtest.AttachTerminal(t, k) })
			t.Run("exit codes", func(t *testing.T) { streamtest.ExitCodes(t, k, p.With(b.node.Kubectl(t))) })
			t.Run("debug", func(t *testing.T) { streamtest.Debug(t, k) })
			t.Run("50 MiB up", func(t *testing.T) { streamtest.Upload(t, k, 50*mebibyte) })
			t.Run("50 MiB down", func(t *testing.T) { streamtest.Download(t, k, 50*mebibyte) })
			t.Run("50 MiB there and back", func(t *testing.T) { streamtest.Echo(t, k, 50*mebibyte) })
			t.Run("cp of 100 MiB", func(t *testing.T) { streamtest.Copy(t, k, 100*mebibyte) })
			t.Run("port-forward of 100 requests", func(t *testing.T) { streamtest.Forward(t, k, 100, mebibyte) })
		})
	}
	t.Run("proxy", func(t *testing.T) { testKubectlProxy(t, c) })
	t.Run("large objects", func(t *testing.T) { testLargeObjects(t, b, c) })
	if grown := peakMemory(t, b.px.PID()) - before; grown > 64<<10 {
		t.Errorf("the proxy's memory grew by %d KiB (RELAY-6)", grown)
	}
}
