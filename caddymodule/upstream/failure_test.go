package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
)

// SIG-3: a failure is told in our words, and only its detail may hold an address.
func TestDescribe(t *testing.T) {
	dial := func(text string) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6443}, Err: errors.New(text)}
	}
	for name, tt := range map[string]struct {
		err             error
		reason, message string
		detail          string // part
	}{
		"not processed":       {fmt.Errorf("http2: %w", ErrNotProcessed), "not_processed", "it can be sent again", "*fmt.wrapError"},
		"unexpected switch":   {ErrUnexpectedSwitch, "bad_upgrade", "was not asked for", "*errors.errorString"},
		"unknown authority":   {x509.UnknownAuthorityError{}, "upstream_tls", "cannot be verified", "x509.UnknownAuthorityError"},
		"unknown name":        {&net.DNSError{Name: "up.example.test"}, "upstream_unreachable", "cannot be resolved", "*net.DNSError"},
		"too slow":            {context.DeadlineExceeded, "upstream_timeout", "did not answer in time", "context.deadlineExceededError"},
		"denied":              {&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6443}, Err: egress.ErrDenied}, "upstream_denied", "denied_targets", "10.0.0.1:6443"},
		"no route":            {dial("no route"), "upstream_unreachable", "cannot be reached", "10.0.0.1:6443: no route"},
		"a long error":        {dial(strings.Repeat("x", 1000)), "upstream_unreachable", "cannot be reached", "xxx"},
		"what it sent is out": {fmt.Errorf("malformed HTTP response %q", "Bearer secret"), "upstream_failed", "the connection to the cluster's apiserver failed", "*errors.errorString"},
		"broken":              {io.ErrUnexpectedEOF, "upstream_failed", "failed", "*errors.errorString"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Describe(tt.err)
			if f.Reason != tt.reason || !strings.Contains(f.Message, tt.message) || !strings.Contains(f.Detail, tt.detail) && name != "what it sent is out" {
				t.Errorf("%+v", f)
			}
			if strings.Contains(f.Message, "10.0.0.1") || strings.Contains(f.Message+f.Detail, "secret") || len(f.Detail) > 256 {
				t.Errorf("it tells too much: %+v", f)
			}
		})
	}
}
