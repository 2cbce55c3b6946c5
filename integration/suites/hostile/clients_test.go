package hostile

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// bothForms is a site where every path belongs to fpH2, but for the path form.
const bothForms = `https://127.0.0.1:%{port2} {
	bind 127.0.0.1
	tls %{cert} %{key}
	proxyauth /clusters/*
	proxyauth {
		cluster ` + ns + `/` + fpH2 + `
	}
}`

// RELAY-4: kubectl and client-go, whose requests the apiserver of one cluster
// redirects to another cluster or another host, repeat them nowhere, in both URL
// forms.
func TestRELAY4ClientsAreNotSentAway(t *testing.T) {
	px := startProxy(t, proxy.Options{Sites: bothForms}, nil)
	hostile, victim := shared.ups[fpH2], shared.ups[fpH1]
	defer hostile.Handle(nil)
	var stolen atomic.Int64
	attacker := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer attacker.Close()
	bearer := token(nil)
	const things = "/api/v1/namespaces/production"

	for form, url := range map[string]string{"path form": px.ClusterURL(ns, fpH2), "host form": "https://127.0.0.1:" + px.Value("port2")} {
		kubectl := func(t *testing.T, stdin string, args ...string) error {
			dir := t.TempDir()
			k := kube.Kubectl{Kubeconfig: filepath.Join(dir, "kubeconfig"), Home: dir, Stdin: []byte(stdin)}
			if err := kube.WriteKubeconfig(k.Kubeconfig, kube.Access{Server: url, CA: px.CA.PEM, Token: bearer}); err != nil {
				return err
			}
			if r := k.MustEnd(t, args...); r.ExitCode != 0 {
				return fmt.Errorf("%s", r.Stderr)
			}
			return nil
		}
		client, err := rest.UnversionedRESTClientFor(&rest.Config{
			Host: url, BearerToken: bearer, TLSClientConfig: rest.TLSClientConfig{CAData: px.CA.PEM},
			ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs},
		})
		if err != nil {
			t.Fatal(err)
		}
		for place, location := range map[string]string{
			"another cluster": "/clusters/" + ns + "/" + fpH1 + things,
			"another host":    attacker.URL + "/x",
		} {
			for name, send := range map[string]func(t *testing.T) error{
				"kubectl get":    func(t *testing.T) error { return kubectl(t, "", "get", "--raw", things) },
				"kubectl create": func(t *testing.T) error { return kubectl(t, "{}", "create", "--raw", things, "-f", "-") },
				"kubectl delete": func(t *testing.T) error { return kubectl(t, "", "delete", "--raw", things) },
				"client-go get":  func(t *testing.T) error { return client.Get().AbsPath(things).Do(t.Context()).Error() },
				"client-go post": func(t *testing.T) error {
					return client.Post().AbsPath(things).Body([]byte("{}")).Do(t.Context()).Error()
				},
				"client-go delete": func(t *testing.T) error { return client.Delete().AbsPath(things).Do(t.Context()).Error() },
			} {
				t.Run(form+", "+place+", "+name, func(t *testing.T) {
					hostile.Reset()
					victim.Reset()
					hostile.Handle(func(w *rawserver.Writer, r *rawserver.Request) {
						_, _ = io.Copy(io.Discard, r)
						w.Respond(http.StatusTemporaryRedirect, nil, rawserver.Field{Name: "Location", Value: location})
					})
					if err := send(t); err == nil || !strings.Contains(err.Error(), "redirects to another place") {
						t.Errorf("error %v", err)
					}
					if len(hostile.Requests()) == 0 {
						t.Error("no request reached the hostile apiserver")
					}
					victim.None(t)
					if stolen.Load() > 0 {
						t.Error("a request reached the attacker")
					}
				})
			}
		}
	}
}
