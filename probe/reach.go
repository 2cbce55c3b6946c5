package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/neterr"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

const versionPath = "/version"

// The stages of a connection.
const (
	atConnect int32 = iota
	atTLS
	atRequest
)

// Reach asks an apiserver for its version without a credential and returns the
// condition Reachable (REC-6). The transport must present no certificate and
// share no connection with one that does. It sets asked when the server asks for
// a certificate. Answers is not used.
func (s Apiserver) Reach(ctx context.Context, asked *atomic.Bool) k8swatch.Condition {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var stage atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() { stage.Store(atTLS) },
		GotConn:           func(httptrace.GotConnInfo) { stage.Store(atRequest) },
	})
	req, err := s.request(ctx, http.MethodGet, versionPath, nil)
	if err != nil {
		// Compilation refuses such addresses.
		return unreachable(k8swatch.ReasonConnectFailed, "the request was not sent: "+err.Error())
	}
	res, err := s.Transport.RoundTrip(req)
	if err != nil {
		return unreachable(failedAt(stage.Load(), asked.Load(), err))
	}
	_ = res.Body.Close()
	answer := fmt.Sprintf("the apiserver answered %d to an anonymous GET %s", res.StatusCode, versionPath)
	if res.StatusCode >= http.StatusInternalServerError {
		return unreachable(k8swatch.ReasonServerError, answer)
	}
	return reachable(k8swatch.StatusTrue, k8swatch.ReasonAnswered, answer)
}

func unreachable(reason, message string) k8swatch.Condition {
	return reachable(k8swatch.StatusFalse, reason, message)
}

func reachable(status, reason, message string) k8swatch.Condition {
	return k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: status, Reason: reason, Message: text.Escape(message, maxMessage)}
}

// failedAt says at which stage a connection failed. In TLS 1.3 a server refuses a
// client without a certificate only after the handshake, and its alert may be
// lost with the connection.
func failedAt(stage int32, asked bool, err error) (reason, message string) {
	kind := neterr.KindOf(err)
	switch {
	case kind == neterr.RemoteAlert || asked && stage == atRequest && !neterr.IsTimeout(err):
		return k8swatch.ReasonTLSFailed, "the apiserver ended the TLS connection; if it demands a client certificate: this check never presents one"
	case kind == neterr.Certificate || kind == neterr.Handshake || stage == atTLS:
		return k8swatch.ReasonTLSFailed, "the TLS handshake with the apiserver failed: " + kindOf(err)
	case stage == atConnect:
		return k8swatch.ReasonConnectFailed, "the apiserver cannot be connected to: " + kindOf(err)
	}
	return k8swatch.ReasonServerError, fmt.Sprintf("the apiserver took the connection and did not answer GET %s: %s", versionPath, kindOf(err))
}
