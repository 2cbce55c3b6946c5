package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
)

func TestKindOf(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, tt := range map[string]struct {
		err     error
		want    Kind
		timeout bool
	}{
		"nothing known":        {err: errors.New("x"), want: Other},
		"end of the stream":    {err: io.ErrUnexpectedEOF, want: Other},
		"cancelled":            {err: context.Canceled, want: Other},
		"verification":         {err: &tls.CertificateVerificationError{Err: errors.New("x")}, want: Certificate},
		"unknown authority":    {err: x509.UnknownAuthorityError{}, want: Certificate},
		"another host name":    {err: x509.HostnameError{Certificate: &x509.Certificate{}}, want: Certificate},
		"expired certificate":  {err: x509.CertificateInvalidError{}, want: Certificate},
		"not TLS":              {err: tls.RecordHeaderError{}, want: Handshake},
		"QUIC alert":           {err: tls.AlertError(40), want: Handshake},
		"unknown name":         {err: dial(&net.DNSError{IsNotFound: true}), want: Resolve},
		"silent name server":   {err: dial(&net.DNSError{IsTimeout: true}), want: Resolve, timeout: true},
		"end of the context":   {err: context.DeadlineExceeded, want: Timeout, timeout: true},
		"end of the deadline":  {err: os.ErrDeadlineExceeded, want: Timeout, timeout: true},
		"wrapped":              {err: fmt.Errorf("asking: %w", context.DeadlineExceeded), want: Timeout, timeout: true},
		"http.Client":          {err: &url.Error{Op: "Get", Err: context.DeadlineExceeded}, want: Timeout, timeout: true},
		"dialling too long":    {err: dial(os.ErrDeadlineExceeded), want: Timeout, timeout: true},
		"refused":              {err: dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), want: Refused},
		"alert of the server":  {err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, want: RemoteAlert},
		"denied target":        {err: dial(egress.ErrDenied), want: Denied},
		"no route":             {err: dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), want: Dial},
		"reset while it reads": {err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}, want: Other},
	} {
		t.Run(name, func(t *testing.T) {
			if got := KindOf(tt.err); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
			if got := IsTimeout(tt.err); got != tt.timeout {
				t.Errorf("IsTimeout: %t", got)
			}
		})
	}
}

// What net/http and crypto/tls really return.
func TestKindOfRealErrors(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	demanding := httptest.NewUnstartedServer(http.NotFoundHandler())
	demanding.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	demanding.StartTLS()
	t.Cleanup(demanding.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	trusting := &tls.Config{InsecureSkipVerify: true}
	for name, tt := range map[string]struct {
		address string
		config  *tls.Config
		want    Kind
	}{
		"unknown authority":    {secure.Listener.Addr().String(), &tls.Config{RootCAs: x509.NewCertPool()}, Certificate},
		"not TLS":              {plain.Listener.Addr().String(), trusting, Handshake},
		"certificate demanded": {demanding.Listener.Addr().String(), trusting, RemoteAlert},
		"refused":              {closed.Addr().String(), trusting, Refused},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			dialer := tls.Dialer{Config: tt.config}
			conn, err := dialer.DialContext(ctx, "tcp", tt.address)
			if err == nil {
				conn.Close()
				t.Fatal("connected")
			}
			if got := KindOf(err); got != tt.want {
				t.Errorf("got %d, want %d: %v", got, tt.want, err)
			}
		})
	}
}
