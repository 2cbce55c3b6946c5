package crowd

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// seen is what the upstream answers: which request it was, and who it was from
// by kube-apiserver's own request-header authenticator.
type seen struct {
	Target string              `json:"target"`
	User   string              `json:"user"`
	Groups []string            `json:"groups"`
	Extra  map[string][]string `json:"extra"`
}

// upstream is a fast stand-in for an apiserver.
type upstream struct {
	*httptest.Server
	serverCA, frontProxyCA *pki.CA
	requests               atomic.Int64
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{serverCA: pki.MustCA("up-server-ca"), frontProxyCA: pki.MustCA("up-front-proxy-ca")}
	verify := func() (x509.VerifyOptions, bool) {
		return x509.VerifyOptions{Roots: u.frontProxyCA.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
	}
	list := func(values ...string) headerrequest.StringSliceProvider {
		return headerrequest.StaticStringSlice(values)
	}
	authn := headerrequest.NewDynamicVerifyOptionsSecure(verify, list(kube.FrontProxyName),
		list("X-Remote-User"), list("X-Remote-Uid"), list("X-Remote-Group"), list("X-Remote-Extra-"))
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok, err := authn.AuthenticateRequest(r)
		if err != nil || !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		who := answer.User
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, kube.ReviewPath) {
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
				"status": map[string]any{"userInfo": map[string]any{"username": who.GetName(), "uid": who.GetUID(), "groups": who.GetGroups(), "extra": who.GetExtra()}},
			})
			return
		}
		u.requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		// Answers come in another order than requests.
		if rand.IntN(8) == 0 {
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		}
		_ = json.NewEncoder(w).Encode(seen{r.RequestURI, who.GetName(), who.GetGroups(), who.GetExtra()})
	}))
	u.TLS = &tls.Config{
		Certificates: []tls.Certificate{pki.Must(u.serverCA.Server()).TLS()},
		ClientAuth:   tls.RequestClientCert, MinVersion: tls.VersionTLS12,
	}
	u.Config.ErrorLog = log.New(io.Discard, "", 0) // cancelled requests
	u.EnableHTTP2 = true
	u.StartTLS()
	t.Cleanup(u.Close)
	return u
}
