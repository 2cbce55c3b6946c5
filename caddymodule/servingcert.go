package caddymodule

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/servingcert"
)

func init() {
	caddy.RegisterModule(CertGetter{})
}

// CertGetter serves the certificate of a kubernetes.io/tls Secret in the
// proxy's own namespace, and follows its renewals without a reload (CONF-4).
// The Secret comes from the source of the app: the Kubernetes API or the
// directory. It may appear later.
//
// When the contents cannot be used (they do not parse, the key does not match, the
// certificate has expired or is not for servers), the last good certificate is
// served until it expires. The handshake fails when there is no good certificate,
// and when the client names a server that the certificate does not cover. A
// client that names no server gets the certificate.
type CertGetter struct {
	// The Secret's name. Required.
	Secret string `json:"secret"`

	certificate *serving.Certificate
}

// CaddyModule returns the Caddy module information.
func (CertGetter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "tls.get_certificate.proxyauth",
		New: func() caddy.Module { return new(CertGetter) },
	}
}

// Provision finds the app and has its source follow the Secret. It reads
// nothing.
func (g *CertGetter) Provision(ctx caddy.Context) error {
	if err := g.option().fill(); err != nil {
		return err
	}
	if err := g.Validate(); err != nil {
		return err
	}
	app, err := findApp(ctx)
	if err != nil {
		return fmt.Errorf("get_certificate proxyauth: %w", err)
	}
	g.certificate, err = app.runtime.ServeCertificate(g.Secret)
	return err
}

// Validate checks the name.
func (g *CertGetter) Validate() error { return servingcert.CheckName(g.Secret) }

// Cleanup runs after a failed Provision too.
func (g *CertGetter) Cleanup() error {
	if g.certificate != nil {
		g.certificate.Release()
	}
	return nil
}

// GetCertificate implements certmagic.Manager. It never returns neither certificate
// nor error, which would mean that another source may have one: certmagic would
// then ask a public CA for a certificate for any name that a client sends. After
// an error certmagic asks the policy's other managers.
func (g *CertGetter) GetCertificate(_ context.Context, hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return g.certificate.For(hello.ServerName)
}

// UnmarshalCaddyfile reads `get_certificate proxyauth <secret>`.
func (g *CertGetter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the manager's name
	if !d.AllArgs(&g.Secret) {
		return d.ArgErr()
	}
	if err := unmarshalOptions(d, nil); err != nil {
		return err
	}
	if hasPlaceholder(g.Secret) {
		return nil
	}
	if err := g.Validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// option is the Secret's name.
func (g *CertGetter) option() option {
	return option{name: "get_certificate proxyauth", value: asText[string](&g.Secret, nil)}
}

// Interface guards.
var (
	_ caddy.Provisioner     = (*CertGetter)(nil)
	_ caddy.Validator       = (*CertGetter)(nil)
	_ caddy.CleanerUpper    = (*CertGetter)(nil)
	_ certmagic.Manager     = (*CertGetter)(nil)
	_ caddyfile.Unmarshaler = (*CertGetter)(nil)
)
