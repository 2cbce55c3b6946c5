//go:build long

package migration

import (
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// REC-7, TRUST-2: the same way on the oldest hub, with the oldest clusters behind
// the proxy.
func TestLongREC7OldestKubernetes(t *testing.T) {
	wholeWay(t, newWorldOf(t, byJwtAuthenticators, true, realtools.KubeAPIServer129, realtools.KubeAPIServer128))
}
