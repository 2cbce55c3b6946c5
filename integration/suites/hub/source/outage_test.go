package source

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	lost   = "the hub apiserver cannot be asked"
	back   = "the hub apiserver answers again"
	noCRD  = "is the CRD of ProxyKubeApi installed?"
	denied = "the hub does not let the proxy list and watch"
)

// REC-2: an outage of the hub changes nothing, and what happened meanwhile is
// seen when it is back.
func TestOutage(t *testing.T) {
	t.Parallel()
	h := newHub(t, v1.CRD)
	h.putSecret("team-a", "ca", "A", nil)
	h.putSecret(proxyNamespace, "proxyauth-frontproxy-team-a.stays", "A", map[string]string{managedBy: "proxyauthk8s"})
	h.put("team-a", "stays", withCA("ca"))
	h.put("team-a", "goes", external)
	config := h.config()
	f := follow(t, config, nil).started()

	h.Suspend()
	eventually(t, "the outage is told", func() bool { return f.count(lost+"; going on from what was last read") == 1 })
	eventually(t, "the read by name fails", func() bool { return strings.HasPrefix(f.secret("team-a", "ca"), "failed") })
	if f.object("team-a", "stays") == nil || f.object("team-a", "goes") == nil || f.secret(proxyNamespace, "proxyauth-frontproxy-team-a.stays") != "A" {
		t.Errorf("forgotten during the outage: %v, %s", f.Keys(), f.secret(proxyNamespace, "proxyauth-frontproxy-team-a.stays"))
	}

	must(t, h.Resume(t.Context()))
	h.remove("team-a", "goes")
	must(t, h.core.Secrets(proxyNamespace).Delete(t.Context(), "proxyauth-frontproxy-team-a.stays", metav1.DeleteOptions{}))
	h.put("team-a", "comes", external)
	eventually(t, "the deletion is seen", func() bool { return f.object("team-a", "goes") == nil })
	eventually(t, "the new object is seen", func() bool { return f.object("team-a", "comes") != nil })
	eventually(t, "the Secret is gone", func() bool { return f.secret(proxyNamespace, "proxyauth-frontproxy-team-a.stays") == "not found" })
	eventually(t, "the read by name works", func() bool { return f.secret("team-a", "ca") == "A" })
	eventually(t, "the end is told", func() bool { return f.count(back) == 1 })
	if f.object("team-a", "stays") == nil {
		t.Error("forgotten after the outage")
	}
	if n := f.count(lost); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// A source that starts without its hub waits for it, and is not the first list.
func TestAbsentAtStart(t *testing.T) {
	t.Parallel()
	h := newHub(t, "")
	config := h.config()
	h.Suspend()
	f := follow(t, config, nil)
	eventually(t, "the absence is told", func() bool { return f.count(lost+"; no cluster is served before it was read once") == 1 })
	must(t, h.Resume(t.Context()))
	eventually(t, "the missing CRD is told", func() bool { return f.count(noCRD) == 1 })
	select {
	case <-f.first:
		t.Error("a first list without the CRD")
	default:
	}
	h.InstallCRD(t, v1.CRD)
	h.put("team-a", "prod", external)
	f.started()
	eventually(t, "the object", func() bool { return f.object("team-a", "prod") != nil })

	t.Run("without rights", func(t *testing.T) {
		h.Admin.MustRun(t, "create", "serviceaccount", "nobody", "-n", proxyNamespace)
		g := follow(t, h.configOf("nobody"), nil)
		eventually(t, "told of each watch", func() bool { return g.count(denied) == 3 })
		select {
		case <-g.first:
			t.Error("a first list without rights")
		default:
		}
	})
}

// openSchema is a CRD that takes any spec.
func openSchema(t *testing.T, crd string) string {
	t.Helper()
	var object map[string]any
	must(t, yaml.Unmarshal([]byte(crd), &object))
	version := object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	schema["properties"].(map[string]any)["spec"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	text, err := yaml.Marshal(object)
	must(t, err)
	return string(text)
}
