package node

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

const (
	acmeNamespace    = "proxyauth-acme"
	storageNamespace = acmeNamespace + "-" + acmeDeployment + "-caddy-efdd02d3" // the chart's default
	acmeRelease      = "edge"
	acmeDeployment   = acmeRelease + "-proxyauthk8s"
	acmeAccount      = "system:serviceaccount:" + acmeNamespace + ":" + acmeDeployment
	// acmeHost is the Service: the authority resolves it, and asks there.
	acmeHost = acmeDeployment + "." + acmeNamespace + ".svc"
)

const acmeValues = `
image: {repository: ` + imageRepository + `, tag: ` + imageTag + `, pullPolicy: Never}
rbac: {secretNamespaces: [` + tenant + `]}
tls:
  mode: acme
  acme: {hosts: [` + acmeHost + `], ca: "` + authorityDirectory + `"}
`

// testStorage installs with tls.mode acme and a private authority: the replicas
// obtain one certificate, which the authority validates through the Service,
// and share it in Secrets of the storage namespace (CONF-4, CHART-1). It goes on
// with the same configuration as JSON.
func (i *installation) testStorage(t *testing.T) {
	a := i.startAuthority(t)
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(acmeValues), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		acmeRelease, chart(t, "proxyauthk8s"), "--namespace", acmeNamespace,
		"--values", values, "--set-file", "tls.acme.caRoot=" + a.rootFile,
	}
	i.Admin.MustRun(t, "create", "namespace", acmeNamespace)
	// Asked before the Service has a pod that is ready, the authority would
	// refuse, and Caddy ask again after a minute.
	a.hold(t)
	i.helm(t, append([]string{"install"}, args...)...)
	pods := i.acmePods(t)
	for _, port := range []string{"80", "443"} {
		i.Eventually(t, "the Service leads to a pod on port "+port, func() bool { return i.leads(t, port) })
	}
	a.release(t)
	var first *x509.Certificate
	for _, ip := range pods {
		// Caddy asks again after a minute when the authority did not reach it at once.
		hub.Eventually(t, ip+" shows a certificate of the authority", 3*time.Minute, func() bool {
			shown := i.obtained(t, a, ip)
			if first == nil {
				first = shown
			}
			return shown != nil && shown.Equal(first)
		})
	}

	i.helm(t, append([]string{"upgrade", "--set-file", "caddyfile=" + i.acmeJSON(t)}, args...)...)
	for _, ip := range i.acmePods(t) {
		i.Eventually(t, ip+" shows the same certificate with a configuration in JSON", func() bool {
			shown := i.obtained(t, a, ip)
			return shown != nil && shown.Equal(first)
		})
	}
	if diff := cmp.Diff(map[string]int{"accounts": 1, "orders": 1, "certificates": 1}, a.deeds(t)); diff != "" {
		t.Errorf("what the authority did: %s", diff)
	}
	i.checkStorageRequests(t)
	i.helm(t, "uninstall", acmeRelease, "--namespace", acmeNamespace)
	i.Admin.MustRun(t, "get", "namespace", storageNamespace)
}

// leads says whether the node takes connections to the Service to a pod: the
// address of a Service without endpoints refuses them.
func (i *installation) leads(t *testing.T, port string) bool {
	t.Helper()
	address := i.Admin.MustRun(t, "get", "service", "-n", acmeNamespace, acmeDeployment, "--output=jsonpath={.spec.clusterIP}").Stdout
	conn, err := i.node.Namespaces.DialContext(t.Context(), "tcp", net.JoinHostPort(address, port))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// acmePods waits until the release has rolled out, and returns the addresses of
// its two pods.
func (i *installation) acmePods(t *testing.T) (addresses []string) {
	t.Helper()
	i.Admin.MustRun(t, "rollout", "status", "-n", acmeNamespace, "deployment/"+acmeDeployment, "--timeout=110s")
	i.Eventually(t, "two pods are left", func() bool {
		var list corev1.PodList
		text := i.Admin.MustRun(t, "get", "pods", "-n", acmeNamespace, "--output=json").Stdout
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		addresses = nil
		for _, p := range pods {
			addresses = append(addresses, p.Status.PodIP)
		}
		return len(pods) == 2 && ready(&pods[0]) && ready(&pods[1])
	})
	return addresses
}

// obtained is the certificate of the authority that a pod shows, nil when it
// shows none.
func (i *installation) obtained(t *testing.T, a *authority, ip string) *x509.Certificate {
	t.Helper()
	raw, err := i.node.Namespaces.DialContext(t.Context(), "tcp", net.JoinHostPort(ip, "8443"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{ServerName: acmeHost, RootCAs: a.pool, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Log(err)
		return nil
	}
	return conn.ConnectionState().PeerCertificates[0]
}

// acmeJSON adapts the Caddyfile that the pods have, and returns the file.
func (i *installation) acmeJSON(t *testing.T) string {
	t.Helper()
	binary, err := proxy.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := i.Admin.MustRun(t, "get", "configmap", "-n", acmeNamespace, acmeDeployment, "--output=jsonpath={.data.Caddyfile}").Stdout
	cmd := exec.CommandContext(t.Context(), binary, "adapt", "--config", "-", "--adapter", "caddyfile")
	cmd.Dir, cmd.Env = t.TempDir(), []string{"HOME=" + t.TempDir()}
	cmd.Stdin = strings.NewReader(text)
	adapted, err := cmd.Output()
	if err != nil {
		t.Fatalf("caddy adapt: %v\n%s", err, text)
	}
	file := filepath.Join(t.TempDir(), "caddy.json")
	if err := os.WriteFile(file, adapted, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
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
	// The account, its key, the certificate, its key and what is said of it.
	if written < 5 {
		t.Errorf("%d Secrets were written", written)
	}
	for _, s := range i.storageSecrets(t) {
		if s.Type != "proxyauth.weebo.si.rs/storage" || s.Labels["app.kubernetes.io/managed-by"] != "proxyauthk8s-storage" {
			t.Errorf("Secret %s has the type %s and the labels %v", s.Name, s.Type, s.Labels)
		}
	}
}

func (i *installation) storageSecrets(t *testing.T) []corev1.Secret {
	t.Helper()
	var list corev1.SecretList
	text := i.Admin.MustRun(t, "get", "secrets", "-n", storageNamespace, "--output=json").Stdout
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 {
		t.Error("the storage namespace has no Secret")
	}
	return list.Items
}
