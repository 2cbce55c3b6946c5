package docs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// renew.sh of certificate.md writes its manifest whole, and leaves no key
// behind where it fails.
func TestRenewScript(t *testing.T) {
	t.Parallel()
	kubectl := realtools.Need(t, realtools.Kubectl)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	const manifest = "proxyauth-frontproxy-team-a.prod.yaml"
	for name, c := range map[string]struct {
		owner, chown string
		files        string
	}{
		"as written":    {me.Username, `chown "$owner"`, manifest},
		"no such user":  {"nobody-of-that-name", `chown "$owner"`, ""},
		"chown refused": {me.Username, `false "$owner"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			clusters, temporary := filepath.Join(dir, "clusters.d"), filepath.Join(dir, "tmp")
			ca := pki.MustCA("front-proxy-ca")
			key, err := x509.MarshalPKCS8PrivateKey(ca.Key)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(
				os.Mkdir(clusters, 0o700), os.Mkdir(temporary, 0o700),
				os.WriteFile(filepath.Join(dir, "ca.crt"), ca.PEM, 0o600),
				os.WriteFile(filepath.Join(dir, "ca.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
				os.Symlink(kubectl, filepath.Join(dir, "kubectl")),
			); err != nil {
				t.Fatal(err)
			}
			script := renewScript(t)
			for from, to := range map[string]string{
				"/etc/front-proxy-ca/team-a-prod": dir,
				"/etc/proxyauth/clusters.d":       clusters,
				"owner=proxyauth":                 "owner=" + c.owner,
				`chown "$owner"`:                  c.chown,
			} {
				if strings.Count(script, from) != 1 {
					t.Fatalf("the script has %q %d times", from, strings.Count(script, from))
				}
				script = strings.Replace(script, from, to, 1)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", script)
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + temporary}
			output, err := cmd.CombinedOutput()
			if (err == nil) != (c.files != "") {
				t.Errorf("%v\n%s", err, output)
			}
			if got := fileNames(t, clusters); got != c.files {
				t.Errorf("the directory holds %q, want %q", got, c.files)
			}
			if got := fileNames(t, temporary); got != "" {
				t.Errorf("the script leaves %s", got)
			}
		})
	}
}

// renewScript is the block of certificate.md that is a program.
func renewScript(t *testing.T) string {
	t.Helper()
	for _, s := range snippets(t, "sh") {
		if s.page == filepath.Join("docs", "certificate.md") && strings.HasPrefix(s.text, "#!/bin/sh\n# renew.sh") {
			return s.text
		}
	}
	t.Fatal("no renew.sh")
	return ""
}

func fileNames(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
