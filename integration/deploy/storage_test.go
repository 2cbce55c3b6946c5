package deploy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const (
	acmeNamespace    = "proxyauth-acme"
	storageNamespace = acmeNamespace + "-caddy" // the chart's default
	acmeRelease      = "internal"
	acmeDeployment   = acmeRelease + "-proxyauthk8s"
	acmeAccount      = "system:serviceaccount:" + acmeNamespace + ":" + acmeDeployment
	acmeHost         = "k8s.example.test"
)

// internalValues are those of tls.mode acme with an authority that needs no
// network: Caddy's own.
const internalValues = `
image: {repository: ` + imageRepository + `, tag: ` + imageTag + `, pullPolicy: Never}
replicas: 1
rbac: {secretNamespaces: [` + tenant + `]}
tls: {mode: acme, acme: {hosts: [` + acmeHost + `]}}
caddyfile: |
  {
  	admin unix//run/proxyauth/admin.sock|0600
  	persist_config off
  	skip_install_trust
  	http_port 8080
  	https_port 8443
  	storage proxyauth {
  		namespace ` + storageNamespace + `
  	}
  	proxyauth {
  		kubernetes
  	}
  }

  ` + acmeHost + ` {
  	tls internal
  	proxyauth
  }

  http://:9180 {
  	proxyauth_health
  }
`

// testStorage installs with tls.mode acme: the second replica finds the
// certificate, and the authority, that the first one has put into Secrets of
// the storage namespace (CONF-4, CHART-1).
func (i *installation) testStorage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(internalValues), 0o600); err != nil {
		t.Fatal(err)
	}
	i.Admin.MustRun(t, "create", "namespace", acmeNamespace)
	i.helm(t, "install", acmeRelease, chart(t, "proxyauthk8s"), "--namespace", acmeNamespace, "--values", file)
	rollout := []string{"rollout", "status", "-n", acmeNamespace, "deployment/" + acmeDeployment, "--timeout=110s"}
	i.Admin.MustRun(t, rollout...)
	var first []*x509.Certificate
	i.Eventually(t, "the first replica has a certificate", func() bool {
		first = i.issued(t, i.acmePods(t)[0])
		return len(first) == 2
	})
	if err := first[0].VerifyHostname(acmeHost); err != nil {
		t.Error(err)
	}
	if err := first[0].CheckSignatureFrom(first[1]); err != nil {
		t.Error(err)
	}

	// One after the other: Caddy makes its authority without a lock.
	i.Admin.MustRun(t, "scale", "-n", acmeNamespace, "deployment/"+acmeDeployment, "--replicas=2")
	i.Admin.MustRun(t, rollout...)
	pods := i.acmePods(t)
	if len(pods) != 2 {
		t.Fatalf("the pods have the addresses %q", pods)
	}
	for _, ip := range pods {
		i.Eventually(t, ip+" shows the certificate of the first", func() bool {
			chain := i.issued(t, ip)
			return len(chain) == 2 && bytes.Equal(chain[0].Raw, first[0].Raw) && bytes.Equal(chain[1].Raw, first[1].Raw)
		})
	}
	i.checkStorageRequests(t)
	i.helm(t, "uninstall", acmeRelease, "--namespace", acmeNamespace)
	i.Admin.MustRun(t, "get", "namespace", storageNamespace)
}

// acmePods are the addresses of the pods.
func (i *installation) acmePods(t *testing.T) []string {
	t.Helper()
	return strings.Fields(i.Admin.MustRun(t, "get", "pods", "-n", acmeNamespace, "--output=jsonpath={.items[*].status.podIP}").Stdout)
}

// issued is the chain that a pod shows, nil when it shows none. Who signed it
// is for the caller to check: the authority is made by the proxy.
func (i *installation) issued(t *testing.T, ip string) []*x509.Certificate {
	t.Helper()
	raw, err := i.node.Namespaces.DialContext(t.Context(), "tcp", net.JoinHostPort(ip, "8443"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{ServerName: acmeHost, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Log(err)
		return nil
	}
	return conn.ConnectionState().PeerCertificates
}

// checkStorageRequests checks that nothing was forbidden, and that Secrets were
// written in the storage namespace alone.
func (i *installation) checkStorageRequests(t *testing.T) {
	t.Helper()
	events, err := i.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	for _, e := range events {
		if e.User.Username != acmeAccount || e.Stage != auditv1.StageResponseComplete {
			continue
		}
		if e.ResponseStatus != nil && e.ResponseStatus.Code == 403 {
			t.Errorf("forbidden: %s %s", e.Verb, e.RequestURI)
		}
		if e.ObjectRef == nil || e.ObjectRef.Resource != "secrets" || e.Verb == "get" || e.Verb == "list" || e.Verb == "watch" {
			continue
		}
		written++
		if e.ObjectRef.Namespace != storageNamespace {
			t.Errorf("%s %s", e.Verb, e.RequestURI)
		}
	}
	if written == 0 {
		t.Error("no Secret was written at all")
	}
}
