package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// Failure says why an apiserver gave no answer.
type Failure struct {
	// Reason is the machine-readable reason of the audit line.
	Reason string
	// Message is a sentence that callers may see.
	Message string
	// Detail is for the log alone: it may hold an address of the proxy's
	// network.
	Detail string
}

// Describe says why RoundTrip failed. The text names the kind of trouble and
// holds nothing that the apiserver sent, since that could echo a credential
// (SIG-3).
func Describe(err error) Failure {
	f := classify(err)
	var operation *net.OpError
	if errors.As(err, &operation) {
		f.Detail = fmt.Sprintf("%.256s", operation.Error())
	} else {
		f.Detail = fmt.Sprintf("%T", err)
	}
	return f
}

func classify(err error) Failure {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		alert        tls.AlertError
		record       tls.RecordHeaderError
		operation    *net.OpError
		resolve      *net.DNSError
		timeout      net.Error
	)
	switch {
	case errors.Is(err, ErrNotProcessed):
		return Failure{Reason: "not_processed", Message: "the cluster's apiserver closed the connection and did not process the request: it can be sent again"}
	case errors.Is(err, ErrUnexpectedSwitch):
		return Failure{Reason: "bad_upgrade", Message: "the cluster's apiserver switched to a protocol that was not asked for"}
	case errors.As(err, &verification), errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid):
		return Failure{Reason: "upstream_tls", Message: "the certificate of the cluster's apiserver cannot be verified"}
	case errors.As(err, &alert), errors.As(err, &record):
		return Failure{Reason: "upstream_tls", Message: "the TLS handshake with the cluster's apiserver failed"}
	case errors.As(err, &resolve):
		return Failure{Reason: "upstream_unreachable", Message: "the address of the cluster's apiserver cannot be resolved"}
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return Failure{Reason: "upstream_timeout", Message: "the cluster's apiserver did not answer in time"}
	case errors.As(err, &operation) && operation.Op == "dial":
		return Failure{Reason: "upstream_unreachable", Message: "the cluster's apiserver cannot be reached"}
	}
	return Failure{Reason: "upstream_failed", Message: "the connection to the cluster's apiserver failed"}
}
