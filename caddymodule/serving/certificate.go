package serving

import (
	"crypto/tls"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/servingcert"
)

// Certificate is the proxy's own certificate from a Secret, as one configuration
// serves it (CONF-4).
type Certificate struct {
	rt     *Runtime
	secret string
	shared *sharedCertificate
}

// sharedCertificate is what the configurations of this process share of a Secret,
// so that a reload keeps the last good certificate.
type sharedCertificate struct {
	*servingcert.Holder
	name   string // <namespace>/<name>
	logger *zap.Logger
	// failures limits how often handshakes that fail are logged.
	failures rate.Sometimes
}

// ServeCertificate has the source follow a Secret in the proxy's own namespace.
// It reads nothing. Each call needs one Release.
func (rt *Runtime) ServeCertificate(secret string) (*Certificate, error) {
	if source, ok := rt.source.(interface{ Follow(name string) }); ok {
		source.Follow(secret)
	}
	name := rt.options.Namespace + "/" + secret
	shared, err := rt.process.certificates.acquire(name, func() (*sharedCertificate, error) {
		logger := rt.process.logger.Named("certificate").With(zap.String("secret", name))
		return &sharedCertificate{Holder: servingcert.New(logger), name: name, logger: logger, failures: rate.Sometimes{Interval: time.Minute}}, nil
	})
	if err != nil {
		return nil, err
	}
	return &Certificate{rt: rt, secret: secret, shared: shared}, nil
}

// Certificates is how many Secrets are served, by any configuration.
func (p *Process) Certificates() int { return p.certificates.size() }

// Release ends the use of the certificate.
func (c *Certificate) Release() { c.rt.process.certificates.release(c.shared.name) }

// For returns the certificate for a server name, which is empty when the client
// names no server.
func (c *Certificate) For(server string) (*tls.Certificate, error) {
	cert, err := c.shared.Certificate(c.rt.source.Secret(c.rt.options.Namespace, c.secret))
	if err != nil {
		c.shared.failures.Do(func() { c.shared.logger.Error("handshakes fail for want of a certificate", zap.Error(err)) })
		return nil, fmt.Errorf("the Secret %s gives no certificate: %w", c.shared.name, err)
	}
	if server != "" && cert.Leaf.VerifyHostname(server) != nil {
		return nil, fmt.Errorf("the certificate of the Secret %s is not for that name", c.shared.name)
	}
	return cert, nil
}
