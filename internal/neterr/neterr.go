package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"syscall"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
)

// Kind is a kind of failure.
type Kind int

// The kinds of failure, in the order in which KindOf looks for them.
const (
	// Other is everything that has no kind of its own.
	Other Kind = iota
	// Denied: the proxy does not connect there (package egress).
	Denied
	// Certificate: the certificate of the server cannot be verified.
	Certificate
	// Handshake: the server does not speak TLS.
	Handshake
	// Resolve: the name of the server cannot be resolved.
	Resolve
	// Timeout: something took too long.
	Timeout
	// Refused: the server's machine refused the connection.
	Refused
	// RemoteAlert: the server ended the connection with a TLS alert.
	RemoteAlert
	// Dial: the connection could not be made for another reason.
	Dial
)

// KindOf finds the kind of an error of a dialer, a TLS connection, an
// http.Transport or an http.Client.
func KindOf(err error) Kind {
	var (
		resolve   *net.DNSError
		operation *net.OpError
	)
	switch {
	case errors.Is(err, egress.ErrDenied):
		return Denied
	case isCertificate(err):
		return Certificate
	case isHandshake(err):
		return Handshake
	case errors.As(err, &resolve):
		return Resolve
	case IsTimeout(err):
		return Timeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.As(err, &operation) && operation.Op == "remote error": // as crypto/tls names it
		return RemoteAlert
	case errors.As(err, &operation) && operation.Op == "dial":
		return Dial
	}
	return Other
}

// IsTimeout reports whether the error is a timeout or the end of a deadline,
// whatever else it is: a name server that does not answer is both Resolve and a
// timeout.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

func isCertificate(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &invalid)
}

func isHandshake(err error) bool {
	var (
		alert  tls.AlertError
		record tls.RecordHeaderError
	)
	return errors.As(err, &alert) || errors.As(err, &record)
}
