//go:build long

package replicas

import (
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// REC-2: the hub is away for two minutes.
func TestLongREC2Outage(t *testing.T) { outage(t, newWorld(t), 2*time.Minute) }

// REC-1, REC-2: the same on the oldest hub, with the oldest cluster behind the
// proxy.
func TestLongREC1OldestKubernetes(t *testing.T) { twoReplicas(t, oldestWorld(t)) }

func TestLongREC2OldestKubernetes(t *testing.T) { outage(t, oldestWorld(t), 30*time.Second) }

func oldestWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, kube.Options{
		APIServer: realtools.KubeAPIServer129,
		// What tells the tokens of the replicas apart; a default since 1.30.
		ExtraArgs: []string{"--feature-gates=ServiceAccountTokenJTI=true"},
	}, kube.Options{APIServer: realtools.KubeAPIServer128})
}
