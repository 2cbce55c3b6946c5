package servingcert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
)

var (
	errServerAuth  = errors.New("the certificate has an extended key usage without serverAuth")
	errNotTLS      = fmt.Errorf("its type is not %s", corev1.SecretTypeTLS)
	errNotToServe  = errors.New("it belongs to the product, and its key is not one to serve with")
	errSecretGone  = errors.New("it does not exist")
	errSecretFault = errors.New("it cannot be read")
)

// CheckName refuses a name that is no name of a Secret, and the Secrets of
// front-proxy certificates and agents (API-5).
func CheckName(name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("the Secret's name %s: %s", text.Quote(name, k8swatch.MaxQuoted), problems[0])
	}
	if k8swatch.ProtectedSecretName(name) {
		return fmt.Errorf("the Secret %s: %w", name, errNotToServe)
	}
	return nil
}

// Holder gives the certificate that the proxy serves TLS with, from a Secret of
// type kubernetes.io/tls (CONF-4). It keeps the last good certificate until that
// certificate expires: neither contents that cannot be used nor a missing Secret
// change anything before. It is safe for concurrent use, and takes no lock while
// the Secret stays the same.
type Holder struct {
	logger *zap.Logger
	now    func() time.Time

	mu    sync.Mutex // over changes of state
	state atomic.Pointer[servingState]
}

// servingState is never changed.
type servingState struct {
	// secret is the Secret that was last seen, nil when it could not be read, and
	// fault says why it cannot be used.
	secret *corev1.Secret
	fault  error
	// newest is the certificate in secret, and good the certificate before it
	// while the newest cannot be used.
	newest, good *tls.Certificate
}

// New returns a Holder that has seen no Secret. It logs each change.
func New(logger *zap.Logger) *Holder {
	return &Holder{logger: logger, now: time.Now}
}

// Certificate returns the certificate to serve, given the Secret as the source
// has it now, or the error that it has instead.
func (c *Holder) Certificate(secret *corev1.Secret, err error) (*tls.Certificate, error) {
	if err != nil {
		secret = nil
	}
	state := c.state.Load()
	if state == nil || !state.saw(secret, err) {
		state = c.look(secret, err)
	}
	return state.choose(c.now())
}

// saw says whether a Secret is the one that was last seen, without comparing its
// contents.
func (s *servingState) saw(secret *corev1.Secret, err error) bool {
	if secret == nil || s.secret == nil {
		return secret == nil && s.secret == nil && secretReadError(err) == s.fault
	}
	return secret == s.secret || secret.ResourceVersion != "" &&
		secret.ResourceVersion == s.secret.ResourceVersion && secret.UID == s.secret.UID
}

// choose returns the certificate that is valid.
func (s *servingState) choose(now time.Time) (*tls.Certificate, error) {
	fault := s.fault
	for _, pair := range []*tls.Certificate{s.newest, s.good} {
		if pair == nil {
			continue
		}
		expired := keypair.ValidityFault(pair.Leaf, now)
		if expired == "" {
			return pair, nil
		}
		if fault == nil {
			fault = errors.New(expired)
		}
	}
	return nil, fault
}

// look takes a new Secret.
func (c *Holder) look(secret *corev1.Secret, err error) *servingState {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.state.Load()
	if before != nil && before.saw(secret, err) {
		return before // another handshake was first
	}
	if before == nil {
		before = new(servingState)
	}
	var after *servingState
	switch {
	case secret == nil:
		after = &servingState{fault: secretReadError(err)}
	case before.secret != nil && sameServing(before.secret, secret):
		after = &servingState{secret: secret, fault: before.fault, newest: before.newest, good: before.good}
		c.state.Store(after)
		return after
	default:
		after = &servingState{secret: secret}
		after.newest, after.fault = parseServing(secret)
	}
	now := c.now()
	if _, err := after.choose(now); err != nil && !errors.Is(err, errNotToServe) {
		after.good, _ = before.choose(now)
	}
	c.state.Store(after)
	c.report(after, now)
	return after
}

func (c *Holder) report(s *servingState, now time.Time) {
	fault := s.fault
	if fault == nil {
		if text := keypair.ValidityFault(s.newest.Leaf, now); text != "" {
			fault = errors.New(text)
		}
	}
	switch pair, _ := s.choose(now); {
	case fault == nil:
		c.logger.Info("serving the certificate", zap.Strings("names", s.newest.Leaf.DNSNames), zap.Time("not_after", s.newest.Leaf.NotAfter))
	case pair != nil:
		c.logger.Warn("the certificate cannot be used: the last good one stays until it expires", zap.Error(fault), zap.Time("not_after", pair.Leaf.NotAfter))
	default:
		c.logger.Error("the certificate cannot be used, and there is no other", zap.Error(fault))
	}
}

func secretReadError(err error) error {
	if apierrors.IsNotFound(err) {
		return errSecretGone
	}
	return errSecretFault
}

// parseServing looks at everything that does not depend on the time.
func parseServing(secret *corev1.Secret) (*tls.Certificate, error) {
	if secret.Labels[k8swatch.ManagedByLabel] == k8swatch.ManagedByValue {
		return nil, errNotToServe
	}
	if secret.Type != corev1.SecretTypeTLS {
		return nil, errNotTLS
	}
	pair, leaf, err := keypair.Match(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], keypair.SecretNames())
	if err != nil {
		return nil, err
	}
	if !keypair.AllowsUsage(leaf, x509.ExtKeyUsageServerAuth) {
		return nil, errServerAuth
	}
	return pair, nil
}

// sameServing says whether two versions of a Secret give the same.
func sameServing(a, b *corev1.Secret) bool {
	return a.Type == b.Type && a.Labels[k8swatch.ManagedByLabel] == b.Labels[k8swatch.ManagedByLabel] &&
		bytes.Equal(a.Data[corev1.TLSCertKey], b.Data[corev1.TLSCertKey]) &&
		bytes.Equal(a.Data[corev1.TLSPrivateKeyKey], b.Data[corev1.TLSPrivateKeyKey])
}
