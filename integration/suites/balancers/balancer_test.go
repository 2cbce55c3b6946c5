package balancers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// Programs and modules of the packages.
const (
	nginx   = "/usr/sbin/nginx"
	haproxy = "/usr/sbin/haproxy"
)

var packages = []realtools.DebianPackage{
	{Name: "nginx", File: nginx},
	{Name: "libnginx-mod-stream", File: "/usr/lib/nginx/modules/ngx_stream_module.so"},
	{Name: "haproxy", File: haproxy},
}

// publicName is the name in the certificate of the proxy that the files verify.
const publicName = "k8s.example.com"

// kind is a load balancer with its configuration in docs/balancers.
type kind struct {
	file string
	// endsTLS says that it speaks HTTP, and does not pass TLS through.
	endsTLS bool
	// protocols are those that its clients may speak.
	protocols []string
}

var kinds = []kind{
	{"nginx-passthrough.conf", false, []string{h1, h2}}, {"nginx-http.conf", true, []string{h1}},
	{"haproxy-passthrough.cfg", false, []string{h1, h2}}, {"haproxy-http.cfg", true, []string{h1, h2}},
}

func (k kind) nginx() bool { return strings.HasPrefix(k.file, "nginx") }

// install installs the packages that are missing.
func install(t *testing.T) {
	t.Helper()
	process.NeedRoot(t, "a load balancer from a package of Debian")
	if err := realtools.Debian(t.Context(), nil, packages...); err != nil {
		t.Fatal(err)
	}
}

// example is a file of the repository.
func example(t *testing.T, path ...string) string {
	t.Helper()
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// change replaces text, each piece of which must be there.
func change(t *testing.T, text string, changes map[string]string) string {
	t.Helper()
	for from, to := range changes {
		if !strings.Contains(text, from) {
			t.Fatalf("the file lacks %q", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}

// serversBlock is the servers block of the example, which believes the balancers of
// the tests.
func serversBlock(t *testing.T) string {
	t.Helper()
	text := example(t, "Caddyfile.examples", "balancer.Caddyfile")
	_, text, _ = strings.Cut(text, "\tservers :443 {\n")
	text, _, found := strings.Cut(text, "\n\t}\n")
	if !found {
		t.Fatal("the example has no servers block")
	}
	text = change(t, text, map[string]string{"10.0.0.11/32 10.0.0.12/32": "127.0.0.1/32"})
	return "servers 127.0.0.1:%{port} {\n" + text + "\n}"
}

// start runs a balancer in front of a proxy, in the namespaces of both, with changes
// to its file, and returns its address.
func (k kind) start(t *testing.T, px *proxy.Proxy, namespaces *process.Namespaces, changes map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	file := filepath.Join(dir, k.file)
	if err := errors.Join(os.WriteFile(file, []byte(k.text(t, px, dir, address, changes)), 0o644), k.writeTLS(dir, px.CA)); err != nil {
		t.Fatal(err)
	}
	o := process.Options{Path: haproxy, Args: []string{"-db", "-f", file}, Dir: dir, LogFile: filepath.Join(dir, "output"), Namespaces: namespaces}
	if k.nginx() {
		o.Path, o.Args = nginx, []string{"-c", file, "-g", "daemon off; master_process off;"}
	}
	p, err := process.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop(5 * time.Second)
		if t.Failed() {
			t.Logf("%s wrote:\n%s", k.file, p.Log())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		c, err := namespaces.DialContext(ctx, "tcp", address)
		if err == nil {
			c.Close()
			return address
		}
		select {
		case <-p.Done():
			t.Fatalf("%s ended:\n%s", k.file, p.Log())
		case <-ctx.Done():
			t.Fatalf("%s does not listen: %v\n%s", k.file, err, p.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// text is the file with the addresses and the folders of a test.
func (k kind) text(t *testing.T, px *proxy.Proxy, dir, address string, changes map[string]string) string {
	t.Helper()
	changes = merge(changes, map[string]string{"10.0.0.21:443": px.Host, "10.0.0.22:443": px.Host})
	if k.nginx() {
		changes["listen 443"] = "listen " + address
		changes["/run/nginx.pid"] = filepath.Join(dir, "nginx.pid")
		changes["/var/log/nginx/error.log"] = "stderr"
	} else {
		changes["bind :443"] = "bind " + address
		changes["maxconn 20000"] = "maxconn 1000" // for any limit of open files
		if changes["port 9180"] == "" {
			changes["port 9180"] = "port " + px.Value("health")
		}
	}
	if k.nginx() && k.endsTLS {
		// A node has a /var/lib of its own, without nginx's folders.
		var paths strings.Builder
		for _, use := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			fmt.Fprintf(&paths, "\n\t%s_temp_path %s;", use, filepath.Join(dir, use))
		}
		changes["\taccess_log off;"] = "\taccess_log off;" + paths.String()
	}
	if k.endsTLS {
		changes[map[bool]string{true: "/etc/nginx/tls/", false: "/etc/haproxy/"}[k.nginx()]] = dir + "/"
	}
	return change(t, example(t, "docs", "balancers", k.file), changes)
}

func merge(a, b map[string]string) map[string]string {
	m := map[string]string{}
	for _, part := range []map[string]string{a, b} {
		for k, v := range part {
			m[k] = v
		}
	}
	return m
}

// writeTLS writes the certificate of the balancer and the authority of the proxy,
// under the names that the files of both programs have.
func (k kind) writeTLS(dir string, ca *pki.CA) error {
	pair, err := ca.Server(publicName)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "tls.crt"), pair.CertPEM, 0o644),
		os.WriteFile(filepath.Join(dir, "tls.key"), pair.KeyPEM, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.pem"), append(pair.CertPEM, pair.KeyPEM...), 0o600),
		os.WriteFile(filepath.Join(dir, "proxyauth-ca.crt"), ca.PEM, 0o644),
	)
}

// clientTLS verifies the certificates of both.
func clientTLS(px *proxy.Proxy, protocol string) *tls.Config {
	return &tls.Config{RootCAs: px.CA.Pool(), ServerName: "127.0.0.1", NextProtos: []string{protocol}}
}
