package users

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// webhook is a token webhook of an apiserver: it introspects what the apiserver
// cannot read, as SecretClientID.
type webhook struct {
	idp    *oidc.Provider
	ca     *pki.CA
	server *httptest.Server
}

func newWebhook(idp *oidc.Provider) (*webhook, error) {
	h := &webhook{idp: idp}
	var err error
	if h.ca, err = pki.NewCA("webhook-ca"); err != nil {
		return nil, err
	}
	serving, err := h.ca.Server()
	if err != nil {
		return nil, err
	}
	h.server = httptest.NewUnstartedServer(http.HandlerFunc(h.review))
	h.server.TLS = &tls.Config{Certificates: []tls.Certificate{serving.TLS()}, MinVersion: tls.VersionTLS12}
	h.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.server.StartTLS()
	return h, nil
}

func (h *webhook) stop() { h.server.Close() }

// writeConfig writes what --authentication-token-webhook-config-file names.
func (h *webhook) writeConfig(file string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: webhook
clusters: [{name: webhook, cluster: {server: %q, certificate-authority-data: %s}}]
contexts: [{name: webhook, context: {cluster: webhook, user: apiserver}}]
users: [{name: apiserver, user: {}}]
`, h.server.URL, base64.StdEncoding.EncodeToString(h.ca.PEM)), 0o600)
}

func (h *webhook) review(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	subject, err := h.introspect(r, review.Spec.Token)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	review.Spec = authenticationv1.TokenReviewSpec{}
	if subject != "" {
		review.Status.Authenticated = true
		review.Status.User.Username = ownPrefix + "introspected:" + subject
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// introspect returns the subject of a token, empty for one that is not active.
func (h *webhook) introspect(r *http.Request, token string) (string, error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, h.idp.Issuer+"/oauth/introspect",
		strings.NewReader(url.Values{"token": {token}}.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(oidc.SecretClientID, oidc.ClientSecret)
	client := h.idp.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct {
		Active  bool   `json:"active"`
		Subject string `json:"sub"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || !answer.Active {
		return "", err
	}
	return answer.Subject, nil
}
