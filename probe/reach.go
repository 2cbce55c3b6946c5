package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

const versionPath = "/version"

// How far a connection came.
const (
	atConnect int32 = iota
	atTLS
	atRequest
)

// Reach asks an apiserver for its version, as nobody, and returns the condition
// Reachable (REC-6). rt must present no certificate and share no connection
// with one that does; base is as in Check, and so is the time. asked becomes true
// when the server asks for a certificate.
func Reach(ctx context.Context, rt http.RoundTripper, base *url.URL, asked *atomic.Bool) k8swatch.Condition {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var stage atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() { stage.Store(atTLS) },
		GotConn:           func(httptrace.GotConnInfo) { stage.Store(atRequest) },
	})
	req, err := request(ctx, base, http.MethodGet, versionPath, nil)
	if err != nil {
		// Compilation keeps such addresses out.
		return unreachable(k8swatch.ReasonConnectFailed, "the request was not sent: "+err.Error())
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return unreachable(failedAt(stage.Load(), asked.Load(), err))
	}
	_ = res.Body.Close()
	text := fmt.Sprintf("the apiserver answered %d to an anonymous GET %s", res.StatusCode, versionPath)
	if res.StatusCode >= http.StatusInternalServerError {
		return unreachable(k8swatch.ReasonServerError, text)
	}
	return reachable(k8swatch.StatusTrue, k8swatch.ReasonAnswered, text)
}

func unreachable(reason, message string) k8swatch.Condition {
	return reachable(k8swatch.StatusFalse, reason, message)
}

func reachable(status, reason, message string) k8swatch.Condition {
	return k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: status, Reason: reason, Message: bounded(message)}
}

// failedAt says which part failed. A server that demands a client certificate
// says so, in TLS 1.3, only after the handshake, and what it says may be lost
// with the connection.
func failedAt(stage int32, asked bool, err error) (reason, message string) {
	var timeout net.Error
	timedOut := errors.As(err, &timeout) && timeout.Timeout()
	switch {
	case isRemoteAlert(err) || asked && stage == atRequest && !timedOut && !errors.Is(err, context.DeadlineExceeded):
		return k8swatch.ReasonTLSFailed, "the apiserver ended the TLS connection; if it demands a client certificate: this check never presents one"
	case isTLS(err) || stage == atTLS:
		return k8swatch.ReasonTLSFailed, "the TLS handshake with the apiserver failed: " + kindOf(err)
	case stage == atConnect:
		return k8swatch.ReasonConnectFailed, "the apiserver cannot be connected to: " + kindOf(err)
	}
	return k8swatch.ReasonServerError, fmt.Sprintf("the apiserver took the connection and did not answer GET %s: %s", versionPath, kindOf(err))
}

func isRemoteAlert(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "remote error"
}

func isTLS(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		alert        tls.AlertError
		record       tls.RecordHeaderError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &hostname) ||
		errors.As(err, &alert) || errors.As(err, &record)
}
