package mechanism

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// The tests of this file hold no line of the product: they pin down what a
// real apiserver does with a front proxy, which the design takes as given.

const whoamiPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// whoami asks an apiserver who the sender is, with raw header lines.
func whoami(t *testing.T, a *kube.APIServer, pair *pki.KeyPair, header http.Header) (int, authenticationv1.UserInfo) {
	t.Helper()
	client := a.HTTPClient(pair)
	defer client.CloseIdleConnections()
	return whoamiWith(t, client, a.URL, header)
}

func whoamiWith(t *testing.T, client *http.Client, base string, header http.Header) (int, authenticationv1.UserInfo) {
	t.Helper()
	body := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+whoamiPath, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("asking who I am: %v", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var review authenticationv1.SelfSubjectReview
	if resp.StatusCode == http.StatusCreated {
		if err := json.Unmarshal(answer, &review); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode, review.Status.UserInfo
}

func TestFrontProxyMechanism(t *testing.T) {
	a := kube.Start(t, kube.Options{})
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	trusted := pki.Must(a.FrontProxy())
	clientCert := pki.Must(a.PKI.ClientCA.Client("carol", "staff"))
	token := serviceAccountToken(t, a)

	alice := http.Header{
		"X-Remote-User":                      {"proxyauth:alice"},
		"X-Remote-Group":                     {"proxyauth:dev", "CN=ops,OU=eu,DC=example,DC=test"},
		"X-Remote-Extra-Example.test%2freal": {"one", "two"},
		"X-Remote-Uid":                       {"u-1"},
	}
	extra := map[string]authenticationv1.ExtraValue{"example.test/real": {"one", "two"}}
	asAlice := authenticationv1.UserInfo{
		Username: "proxyauth:alice",
		Groups:   []string{"proxyauth:dev", "CN=ops,OU=eu,DC=example,DC=test", "system:authenticated"},
		Extra:    extra,
	}
	with := func(h http.Header, name, value string) http.Header {
		h = h.Clone()
		if h == nil {
			h = http.Header{}
		}
		h[name] = []string{value}
		return h
	}
	asCarol := authenticationv1.UserInfo{Username: "carol", Groups: []string{"staff", "system:authenticated"}}

	tests := []struct {
		name   string
		pair   *pki.KeyPair
		header http.Header
		code   int
		want   authenticationv1.UserInfo
	}{
		{"dedicated CA, allowed name", trusted, alice, 201, asAlice},
		{"aggregation CA, its name", pki.Must(a.PKI.AggregationCA.Client(kube.AggregatorName)), alice, 201, asAlice},
		{"no EKU passes", pki.Must(a.PKI.FrontProxyCA.Issue(pki.Request{CommonName: kube.FrontProxyName})), alice, 201, asAlice},
		{"UTF-8 name", trusted, with(nil, "X-Remote-User", "proxyauth:élodie"), 201,
			authenticationv1.UserInfo{Username: "proxyauth:élodie", Groups: []string{"system:authenticated"}}},
		{"a bearer beside it is not looked at", trusted, with(alice, "Authorization", "Bearer "+token), 201, asAlice},
		{"name not allowed", pki.Must(a.PKI.FrontProxyCA.Client("somebody")), alice, 401, authenticationv1.UserInfo{}},
		{"CA not known", pki.Must(pki.MustCA("stranger").Client(kube.FrontProxyName)), alice, 401, authenticationv1.UserInfo{}},
		{"serverAuth alone", pki.Must(a.PKI.FrontProxyCA.Issue(pki.Request{CommonName: kube.FrontProxyName, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})), alice, 401, authenticationv1.UserInfo{}},
		{"expired", pki.Must(a.PKI.FrontProxyCA.Issue(pki.Request{CommonName: kube.FrontProxyName, Usages: usages, NotAfter: time.Now().Add(-time.Minute)})), alice, 401, authenticationv1.UserInfo{}},
		{"no X-Remote-User", trusted, nil, 401, authenticationv1.UserInfo{}},
		{"client CA: another identity", clientCert, alice, 201, asCarol},
		{"client CA outranks a good token", clientCert, with(nil, "Authorization", "Bearer "+token), 201, asCarol},
		{"client CA outranks a bad token", clientCert, with(nil, "Authorization", "Bearer nonsense"), 201, asCarol},
		{"no certificate: headers ignored, anonymous may not ask", nil, alice, 403, authenticationv1.UserInfo{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			code, got := whoami(t, a, tc.pair, tc.header)
			if code != tc.code {
				t.Fatalf("code %d, want %d (seen as %q)", code, tc.code, got.Username)
			}
			ignoreCredentialID(&got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}

	// Go's TLS client keeps back what is in tls.Config.Certificates when the
	// server's list of acceptable CAs lacks the issuer: the request is then an
	// anonymous one, and a 403 instead of a 401 hides that the certificate is
	// not trusted. To get the 401, use GetClientCertificate.
	t.Run("a withheld certificate makes the sender anonymous", func(t *testing.T) {
		stranger := pki.Must(pki.MustCA("stranger").Client(kube.FrontProxyName))
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: a.PKI.ServerCA.Pool(), Certificates: []tls.Certificate{stranger.TLS()},
		}}}
		defer client.CloseIdleConnections()
		if code, _ := whoamiWith(t, client, a.URL, alice); code != 403 {
			t.Errorf("code %d, want 403", code)
		}
	})
	t.Run("audit names the asserted user", func(t *testing.T) {
		events := a.MustAudit(t, func(e *auditv1.Event) bool { return e.User.Username == "proxyauth:élodie" })
		if got := events[0].SourceIPs; !cmp.Equal(got, []string{"127.0.0.1"}) {
			t.Errorf("sourceIPs %q", got)
		}
	})
}

// TestRequestHeaderFlags covers apiservers that lack a flag or add one: groups
// and extra are lost without a word, a uid is only read when asked for.
func TestRequestHeaderFlags(t *testing.T) {
	etcd := kube.StartSharedEtcd(t)
	shared, err := kube.NewPKI()
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{
		"X-Remote-User":                   {"alice"},
		"X-Remote-Group":                  {"dev"},
		"X-Remote-Extra-Example.test%2fa": {"x"},
		"X-Remote-Uid":                    {"u-1"},
	}
	tests := []struct {
		name   string
		change func(*kube.RequestHeader)
		want   authenticationv1.UserInfo
	}{
		{"no group flag", func(h *kube.RequestHeader) { h.NoGroupHeaders = true },
			authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"example.test/a": {"x"}}}},
		{"no extra flag", func(h *kube.RequestHeader) { h.NoExtraHeaders = true },
			authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev", "system:authenticated"}}},
		{"uid flag", func(h *kube.RequestHeader) { h.UIDHeaders = true },
			authenticationv1.UserInfo{Username: "alice", UID: "u-1", Groups: []string{"dev", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"example.test/a": {"x"}}}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			h := shared.DefaultRequestHeader()
			tc.change(h)
			a := kube.Start(t, kube.Options{Etcd: etcd, PKI: shared, RequestHeader: h})
			code, got := whoami(t, a, pki.Must(a.FrontProxy()), header)
			if code != 201 {
				t.Fatalf("code %d", code)
			}
			ignoreCredentialID(&got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no request-header CA", func(t *testing.T) {
		a := kube.Start(t, kube.Options{Etcd: etcd, PKI: shared, RequestHeader: &kube.RequestHeader{}})
		if code, got := whoami(t, a, pki.Must(a.FrontProxy()), header); code != 401 {
			t.Errorf("code %d, seen as %+v", code, got)
		}
	})
}

// ignoreCredentialID drops the extra that 1.37 adds for x509 credentials.
func ignoreCredentialID(u *authenticationv1.UserInfo) {
	delete(u.Extra, "authentication.kubernetes.io/credential-id")
	if len(u.Extra) == 0 {
		u.Extra = nil
	}
}

// serviceAccountToken is a token that the apiserver believes.
func serviceAccountToken(t *testing.T, a *kube.APIServer) string {
	t.Helper()
	k := a.Kubectl(t, "")
	k.MustRun(t, "create", "serviceaccount", "robot")
	token := k.MustRun(t, "create", "token", "robot").Stdout
	if len(token) < 100 {
		t.Fatal(fmt.Errorf("no token: %q", token))
	}
	return string(bytes.TrimSpace([]byte(token)))
}
