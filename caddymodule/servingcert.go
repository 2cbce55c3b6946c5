package caddymodule

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

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

	app     *App
	poolKey string
	serving *servingCertificate
}

// servingCertificates holds, by namespace and name, what the configurations of
// this process serve, so that a reload keeps the last good certificate.
var servingCertificates = caddy.NewUsagePool()

type servingCertificate struct {
	*servingcert.Holder
	logger *zap.Logger
	// failures limits how often handshakes that fail are logged.
	failures rate.Sometimes
}

// Destruct does nothing: nothing runs.
func (*servingCertificate) Destruct() error { return nil }

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
	if err := g.Validate(); err != nil {
		return err
	}
	app, err := findApp(ctx)
	if err != nil {
		return fmt.Errorf("get_certificate proxyauth: %w", err)
	}
	g.app = app
	if source, ok := app.runtime.Source().(interface{ Follow(name string) }); ok {
		source.Follow(g.Secret)
	}
	key := app.runtime.Options().Namespace + "/" + g.Secret
	value, _, err := servingCertificates.LoadOrNew(key, func() (caddy.Destructor, error) {
		logger := zap.New(process.Log).Named("proxyauth.certificate").With(zap.String("secret", key))
		return &servingCertificate{Holder: servingcert.New(logger), logger: logger, failures: rate.Sometimes{Interval: time.Minute}}, nil
	})
	if err != nil {
		return err
	}
	g.poolKey, g.serving = key, value.(*servingCertificate)
	return nil
}

// Validate checks the name.
func (g *CertGetter) Validate() error { return servingcert.CheckName(g.Secret) }

// Cleanup runs after a failed Provision too.
func (g *CertGetter) Cleanup() error {
	if g.poolKey == "" {
		return nil
	}
	_, err := servingCertificates.Delete(g.poolKey)
	return err
}

// GetCertificate implements certmagic.Manager. It never returns neither certificate
// nor error, which would mean that another source may have one: certmagic would
// then ask a public CA for a certificate for any name that a client sends. After
// an error certmagic asks the policy's other managers.
func (g *CertGetter) GetCertificate(_ context.Context, hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	runtime := g.app.runtime
	cert, err := g.serving.Certificate(runtime.Source().Secret(runtime.Options().Namespace, g.Secret))
	if err != nil {
		g.serving.failures.Do(func() { g.serving.logger.Error("handshakes fail for want of a certificate", zap.Error(err)) })
		return nil, fmt.Errorf("the Secret %s gives no certificate: %w", g.poolKey, err)
	}
	if hello.ServerName != "" && cert.Leaf.VerifyHostname(hello.ServerName) != nil {
		return nil, fmt.Errorf("the certificate of the Secret %s is not for that name", g.poolKey)
	}
	return cert, nil
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
	if err := g.Validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner     = (*CertGetter)(nil)
	_ caddy.Validator       = (*CertGetter)(nil)
	_ caddy.CleanerUpper    = (*CertGetter)(nil)
	_ certmagic.Manager     = (*CertGetter)(nil)
	_ caddyfile.Unmarshaler = (*CertGetter)(nil)
)
