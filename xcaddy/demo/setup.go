package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

//go:embed manifests
var manifests embed.FS

// writeManifests fills the directory of the proxy: the ProxyKubeApi, which is the
// file for users to change, and the CA and the certificate that it needs.
func (d *demo) writeManifests(context.Context) error {
	if err := os.Mkdir(d.clusters(), 0o755); err != nil {
		return fmt.Errorf("making the directory of clusters: %w", err)
	}
	cluster, err := d.fill("manifests/cluster.yaml")
	if err != nil {
		return err
	}
	pair, err := d.apiserver.FrontProxy()
	if err != nil {
		return err
	}
	ca := map[string]string{"ca.crt": string(d.apiserver.PKI.ServerCA.PEM)}
	for _, m := range []struct{ file, content string }{
		{"cluster.yaml", cluster},
		{"apiserver-ca.yaml", proxy.Manifests(proxy.ConfigMap(namespace, "demo-ca", ca))},
		{"front-proxy.yaml", proxy.Manifests(proxy.FrontProxySecret(namespace, name, d.apiserver.URL, pair))},
	} {
		file := filepath.Join(d.clusters(), m.file)
		// One of them holds a private key.
		if err := os.WriteFile(file, []byte(m.content), 0o600); err != nil {
			return fmt.Errorf("writing a manifest: %w", err)
		}
		fmt.Fprintf(d.out, "    %s\n", file)
	}
	return nil
}

// fill fills in the template of the ProxyKubeApi.
func (d *demo) fill(file string) (string, error) {
	indent := func(n int, text string) string {
		return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", n))
	}
	t, err := template.New(filepath.Base(file)).Funcs(template.FuncMap{"indent": indent}).ParseFS(manifests, file)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", file, err)
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]string{
		"Namespace": namespace, "Name": name, "Prefix": prefix,
		"URL": d.apiserver.URL, "Issuer": d.idp.Issuer, "IssuerCA": string(d.idp.CA.PEM), "Audience": oidc.ClientID,
	})
	if err != nil {
		return "", fmt.Errorf("filling in %s: %w", file, err)
	}
	return b.String(), nil
}

// grantRights is what the apiserver's administrator does.
func (d *demo) grantRights(ctx context.Context) error {
	content, err := manifests.ReadFile("manifests/rbac.yaml")
	if err != nil {
		return err
	}
	admin := kube.Kubectl{Kubeconfig: d.apiserver.Kubeconfig, Home: d.home(), Stdin: content}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	r, err := admin.Run(ctx, "apply", "-f", "-")
	if err != nil {
		return err
	}
	if r.ExitCode != 0 {
		return fmt.Errorf("applying the rights: %s", r.Stderr)
	}
	d.quote(r.Stdout)
	// The apiserver's authorizer reads a binding a moment after it is stored.
	return d.poll(ctx, "the rights", func() error {
		r, err := admin.Run(ctx, "auth", "can-i", "list", "pods", "--all-namespaces",
			"--as="+prefix+"somebody", "--as-group="+prefix+"team-a")
		if err != nil {
			return err
		}
		if r.ExitCode != 0 {
			return errors.New("not granted yet")
		}
		return nil
	})
}

// home is that of kubectl when the demo runs it.
func (d *demo) home() string { return filepath.Join(d.dir, "home") }

// users are the contexts of the kubeconfig: name to username.
var users = map[string]string{"alice": oidc.Alice, "elodie": oidc.Elodie}

// writeKubeconfig writes a context for each user.
func (d *demo) writeKubeconfig(context.Context) error {
	ca, err := os.ReadFile(d.proxyCA())
	if err != nil {
		return fmt.Errorf("reading the CA of the proxy: %w", err)
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: d.url(), CertificateAuthorityData: ca}
	for user, username := range users {
		cfg.AuthInfos[user] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion:      "client.authentication.k8s.io/v1",
			Command:         d.self,
			Args:            append([]string{"token"}, append(d.tokenFlags(username), "-exec")...),
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
		cfg.Contexts[user] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	}
	cfg.CurrentContext = "alice"
	if err := clientcmd.WriteToFile(*cfg, d.kubeconfig()); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	fmt.Fprintf(d.out, "    %s\n", d.kubeconfig())
	return nil
}

// tokenFlags are those of `demo token` for a user.
func (d *demo) tokenFlags(username string) []string {
	return []string{"-issuer", d.idp.Issuer, "-ca", d.idpCA(), "-client", oidc.ClientID, "-user", username}
}
