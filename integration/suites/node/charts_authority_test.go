package node

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// authority is a private ACME authority on the node's address: Caddy's own, as
// another process of the program under test.
type authority struct {
	*process.Process
	rootFile string
	pool     *x509.CertPool
}

const (
	authorityAddress   = node.Address + ":9443"
	authorityDirectory = "https://" + authorityAddress + "/acme/local/directory"
	authorityCaddyfile = `{
	admin off
	persist_config off
	skip_install_trust
	auto_https disable_redirects
}

https://` + authorityAddress + ` {
	log
	tls internal
	acme_server
}
`
)

// startAuthority returns when the authority has its root.
func (i *installation) startAuthority(t *testing.T) *authority {
	t.Helper()
	binary, err := proxy.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(authorityCaddyfile), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(process.Options{
		Path: binary, Args: []string{"run", "--config", config}, Dir: dir, Namespaces: i.node.Namespaces,
		Env: []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}, LogFile: filepath.Join(dir, "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	a := &authority{Process: p, rootFile: filepath.Join(dir, "caddy", "pki", "authorities", "local", "root.crt"), pool: x509.NewCertPool()}
	i.Eventually(t, "the authority has a root", func() bool {
		root, err := os.ReadFile(a.rootFile)
		return err == nil && a.pool.AppendCertsFromPEM(root)
	})
	return a
}

// hold lets clients of the authority wait, for half a minute if need be, until
// release.
func (a *authority) hold(t *testing.T)    { a.signal(t, syscall.SIGSTOP) }
func (a *authority) release(t *testing.T) { a.signal(t, syscall.SIGCONT) }

func (a *authority) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := a.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// what an authority does that leaves something behind, by the requests for it.
var authorityDeeds = map[string]*regexp.Regexp{
	"accounts":     regexp.MustCompile(`^POST /acme/local/new-account 201$`),
	"orders":       regexp.MustCompile(`^POST /acme/local/new-order 201$`),
	"certificates": regexp.MustCompile(`^POST /acme/local/order/[^/]+/finalize 200$`),
}

// deeds counts them in the authority's access log.
func (a *authority) deeds(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(a.Log())); lines.Scan(); {
		var entry struct {
			Logger  string
			Status  json.Number
			Request struct{ Method, URI string }
		}
		if json.Unmarshal(lines.Bytes(), &entry) != nil || entry.Logger != "http.log.access" {
			continue
		}
		for what, deed := range authorityDeeds {
			if deed.MatchString(entry.Request.Method + " " + entry.Request.URI + " " + entry.Status.String()) {
				counts[what]++
			}
		}
	}
	return counts
}
