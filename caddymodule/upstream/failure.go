package upstream

import (
	"errors"
	"fmt"
	"net"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/neterr"
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

// Describe says why RoundTrip failed. The text names the kind of failure and
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
	switch {
	case errors.Is(err, ErrNotProcessed):
		return Failure{Reason: "not_processed", Message: "the cluster's apiserver closed the connection and did not process the request: it can be sent again"}
	case errors.Is(err, ErrUnexpectedSwitch):
		return Failure{Reason: "bad_upgrade", Message: "the cluster's apiserver switched to a protocol that was not asked for"}
	}
	switch neterr.KindOf(err) {
	case neterr.Certificate:
		return Failure{Reason: "upstream_tls", Message: "the certificate of the cluster's apiserver cannot be verified"}
	case neterr.Handshake:
		return Failure{Reason: "upstream_tls", Message: "the TLS handshake with the cluster's apiserver failed"}
	case neterr.Denied:
		return Failure{Reason: "upstream_denied", Message: "the cluster's apiserver is at an address to which this proxy does not connect (denied_targets)"}
	case neterr.Resolve:
		return Failure{Reason: "upstream_unreachable", Message: "the address of the cluster's apiserver cannot be resolved"}
	case neterr.Timeout:
		return Failure{Reason: "upstream_timeout", Message: "the cluster's apiserver did not answer in time"}
	case neterr.Refused, neterr.Dial:
		return Failure{Reason: "upstream_unreachable", Message: "the cluster's apiserver cannot be reached"}
	}
	return Failure{Reason: "upstream_failed", Message: "the connection to the cluster's apiserver failed"}
}
