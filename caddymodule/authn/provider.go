package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// What is asked of an identity provider, and how long it may take (AUTH-13).
const (
	connectLimit = 5 * time.Second
	answerLimit  = 10 * time.Second
	maxAnswer    = 1 << 20
	maxHeader    = 64 << 10

	wellKnownPath = "/.well-known/openid-configuration"
)

// fault is what is wrong with a provider, in words of our own: it is shown in
// the notice IssuerUnavailable, and a provider does not write there.
type fault string

func (f fault) Error() string { return string(f) }

var errNoCertificates = errors.New("the certificate authority holds no certificate")

// newClient makes a client for one provider: https only, no redirects, no
// proxy from the environment (the address would then be resolved, and the
// request seen, by something the proxy admin may not think of), no
// compression, no connection kept between reads minutes apart. ca is PEM,
// empty for the system roots; one that holds no certificate is an error.
func newClient(ca string) (*http.Client, error) {
	var roots *x509.CertPool
	if ca != "" {
		var err error
		if roots, err = certutil.NewPoolFromBytes([]byte(ca)); err != nil {
			return nil, errNoCertificates
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: connectLimit}).DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    connectLimit,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
			IdleConnTimeout:        answerLimit,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// get reads one JSON document. Its errors are faults.
func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil || request.URL.Scheme != "https" {
		return nil, fault("it is not an https URL")
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Cache-Control", "no-cache")
	request.Header.Set("User-Agent", "proxyauthk8s")
	response, err := client.Do(request)
	if err != nil {
		return nil, describe(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fault(fmt.Sprintf("it answered with status %d", response.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, describe(err)
	}
	if len(body) > maxAnswer {
		return nil, fault("its answer is over 1 MiB")
	}
	return body, nil
}

// describe says what kind of trouble a request met.
func describe(err error) fault {
	var (
		name      *net.DNSError
		untrusted *tls.CertificateVerificationError
		alert     tls.AlertError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.Is(err, context.Canceled):
		return "it is no longer asked"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return "it did not answer in time"
	case errors.As(err, &name):
		return "its name cannot be resolved"
	case errors.As(err, &untrusted):
		return "its certificate is not trusted"
	case errors.As(err, &alert), errors.As(err, &record):
		return "the TLS handshake failed"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "it refused the connection"
	}
	return "the connection failed"
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// discover reads the discovery document and returns its jwks_uri. The
// document must be the issuer's own: this is what binds keys to the iss of a
// token (OpenID Connect Discovery, section 4.3), also with a discovery URL
// elsewhere.
func discover(ctx context.Context, client *http.Client, issuer, discoveryURL string) (string, error) {
	if discoveryURL == "" {
		discoveryURL = strings.TrimSuffix(issuer, "/") + wellKnownPath
	}
	body, err := get(ctx, client, discoveryURL)
	if err != nil {
		return "", err
	}
	var document struct {
		Issuer  string `json:"issuer"`
		KeysURI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return "", fault("its discovery document cannot be read")
	}
	if document.Issuer != issuer {
		return "", fault("its discovery document names another issuer")
	}
	address, err := url.Parse(document.KeysURI)
	if err != nil || address.Scheme != "https" || address.Host == "" || address.User != nil {
		return "", fault("its jwks_uri is not an https URL")
	}
	return address.String(), nil
}
