package frontproxy

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// RELAY-4: kubectl and client-go follow the redirects of an apiserver, which knows
// nothing of the path form, in both URL forms, and receive what they receive
// directly.
func TestRELAY4ClientsFollowRedirects(t *testing.T) {
	w := get(t)
	const path, hash = "/openapi/v3/apis/apps/v1", "0123"
	direct := w.plain.Kubectl(t, "").MustRun(t, "get", "--raw", path+"?hash="+hash).Stdout
	if len(direct) < 100_000 {
		t.Fatalf("%d bytes directly", len(direct))
	}
	token := w.idp.Token(oidc.Alice, nil)
	for form, url := range map[string]string{"path form": w.url("prod"), "host form": "https://127.0.0.1:" + w.px.Value("port2")} {
		t.Run("kubectl, "+form, func(t *testing.T) {
			k := kube.Kubectl{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), Home: t.TempDir()}
			if err := kube.WriteKubeconfig(k.Kubeconfig, kube.Access{Server: url, CA: w.px.CA.PEM, Token: token}); err != nil {
				t.Fatal(err)
			}
			if through := k.MustRun(t, "get", "--raw", path+"?hash="+hash).Stdout; through != direct {
				t.Errorf("%d bytes through the proxy, %d bytes directly", len(through), len(direct))
			}
		})
		t.Run("client-go, "+form, func(t *testing.T) {
			client, err := rest.UnversionedRESTClientFor(&rest.Config{
				Host: url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: w.px.CA.PEM},
				ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs},
			})
			if err != nil {
				t.Fatal(err)
			}
			through, err := client.Get().AbsPath(path).Param("hash", hash).SetHeader("Accept", "application/json").DoRaw(t.Context())
			if err != nil || string(through) != direct {
				t.Errorf("%d bytes through the proxy, %d bytes directly, %v", len(through), len(direct), err)
			}
		})
	}
}
