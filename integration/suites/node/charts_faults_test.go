package node

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// testServingCertificate replaces the certificate in the Secret: new
// connections to the same processes get the new one (CONF-4).
func (i *installation) testServingCertificate(t *testing.T) {
	before := i.pods(t)
	pair := pki.Must(i.serving.Server(host))
	i.Apply(t, servingSecret(pair))
	for _, p := range before {
		took := i.Eventually(t, p.Name+" shows the new certificate", func() bool {
			return bytes.Equal(i.shown(t, p.Status.PodIP), pair.Certificate.Raw)
		})
		t.Logf("pod %s shows the new certificate after %s", p.Name, took.Round(10*time.Millisecond))
	}
	for _, p := range before {
		now := i.pod(t, p.Name)
		if now.UID != p.UID || now.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("pod %s was restarted", p.Name)
		}
	}
}

// shown is the certificate of a new connection to a pod, in DER, and nil when
// there is none.
func (i *installation) shown(t *testing.T, ip string) []byte {
	t.Helper()
	raw, err := i.node.Namespaces.DialContext(t.Context(), "tcp", net.JoinHostPort(ip, "8443"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{RootCAs: i.serving.Pool(), ServerName: host, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Log(err)
		return nil
	}
	return conn.ConnectionState().PeerCertificates[0].Raw
}

// testKilledLeader kills the process that leads: the others serve on, another
// process leads, and the kubelet starts the killed one again.
func (i *installation) testKilledLeader(t *testing.T) {
	holder, leader := i.leader(t, "")
	l := i.startLoad(t, i.addressBeside(t, leader), false)
	pid := proxyProcess(t, leader)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	i.leader(t, holder)
	i.mustReconcile(t)
	l.mustEnd(t)
	i.rolledOut(t, 3)
	if n := i.pod(t, leader).Status.ContainerStatuses[0].RestartCount; n != 1 {
		t.Errorf("pod %s was restarted %d times", leader, n)
	}
}

// testDeletedLeader removes the pod that leads without any grace.
func (i *installation) testDeletedLeader(t *testing.T) {
	holder, leader := i.leader(t, "")
	l := i.startLoad(t, i.addressBeside(t, leader), false)
	i.Admin.MustRun(t, "delete", "pod", "-n", namespace, leader, "--force", "--grace-period=0")
	i.leader(t, holder)
	i.mustReconcile(t)
	l.mustEnd(t)
	i.rolledOut(t, 3)
	i.kubectl(t, "front", i.idp.Token(oidc.Alice, nil)).MustRun(t, "auth", "whoami")
}

// addressBeside is that of a pod other than the given one.
func (i *installation) addressBeside(t *testing.T, other string) string {
	t.Helper()
	for _, p := range i.pods(t) {
		if p.Name != other && ready(&p) {
			return net.JoinHostPort(p.Status.PodIP, "8443")
		}
	}
	t.Fatalf("no pod beside %s is ready", other)
	return ""
}

// proxyProcess is the process id, on this machine, of the proxy in a pod.
func proxyProcess(t *testing.T, pod string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		if bytes.Contains(append([]byte{0}, environ...), fmt.Appendf(nil, "\x00POD_NAME=%s\x00", pod)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no process of pod %s", pod)
	return 0
}
