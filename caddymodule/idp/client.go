package idp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/neterr"
)

// What a provider is given (AUTH-13): the time to connect, and to answer in
// all.
const (
	ConnectLimit = 5 * time.Second
	AnswerLimit  = 10 * time.Second

	maxHeader = 64 << 10
	// receiveBuffer is room for a small answer to each call at once, so that
	// large ones that wait for a slot do not keep others from being read.
	receiveBuffer = 3 * maxCalls * boundedjson.SmallAnswer
	// A connection is kept for the next token, not for the next hour.
	idleLimit = 90 * time.Second
	// A connection on which nothing comes back any more is given up after
	// twice this.
	pingAfter = 5 * time.Second
)

// Fault is what is wrong with a provider, in words of our own: it is shown in
// the notice IssuerUnavailable, and a provider does not write there.
type Fault string

// Error is the fault.
func (f Fault) Error() string { return string(f) }

const (
	notHTTPS         Fault = "it is not an https URL"
	connectionFailed Fault = "the connection failed"
)

// The faults of an answer that is too large.
const (
	TooLarge Fault = "its answer is over 1 MiB"
	noSlot   Fault = "its answer is over 64 KiB, and too many such answers are read at once"

	TooManyMembers  Fault = "its answer has too many members"
	TooManyElements Fault = "its answer has too many elements"
)

var errNoCertificates = errors.New("the certificate authority holds no certificate")

// Client asks one provider. Its own Do takes the place of http.Client's.
type Client struct {
	*http.Client
	answers *boundedjson.Reader
}

// NewClient makes a client for one provider: https only, no redirects, no
// proxy from the environment (the address would then be resolved, and the
// request seen, by something the proxy admin may not think of), no
// compression. ca is PEM, empty for the system roots; one that holds no
// certificate is an error. answers limits what is read of the answers; all
// clients of the process share it. No connection leads to a denied target.
func NewClient(ca string, answers *boundedjson.Reader, denied *egress.Policy) (*Client, error) {
	var roots *x509.CertPool
	if ca != "" {
		var err error
		if roots, err = certutil.NewPoolFromBytes([]byte(ca)); err != nil {
			return nil, errNoCertificates
		}
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialContext:         denied.Dialer(net.Dialer{Timeout: ConnectLimit}),
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: ConnectLimit,
			ForceAttemptHTTP2:   true,
			HTTP2: &http.HTTP2Config{
				SendPingTimeout: pingAfter,
				PingTimeout:     pingAfter,
				// How much a provider may send before the proxy reads it: for one
				// answer no more than a small answer, which never waits.
				MaxReceiveBufferPerStream:     boundedjson.SmallAnswer,
				MaxReceiveBufferPerConnection: receiveBuffer,
			},
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
			MaxIdleConnsPerHost:    maxCalls,
			IdleConnTimeout:        idleLimit,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Client{Client: client, answers: answers}, nil
}

// Address reports whether a URL is one a provider may be asked at: https, a
// host, no user info and no fragment.
func Address(s string) bool {
	address, err := url.Parse(s)
	return err == nil && address.Scheme == "https" && address.Host != "" && address.User == nil && address.Fragment == ""
}

// NewGet makes a request for JSON.
func NewGet(ctx context.Context, address string) (*http.Request, error) {
	return newRequest(ctx, http.MethodGet, address, nil)
}

// NewPost makes a request that sends a form and expects JSON.
func NewPost(ctx context.Context, address string, form url.Values) (*http.Request, error) {
	request, err := newRequest(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request, nil
}

func newRequest(ctx context.Context, method, address string, body io.Reader) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil || request.URL.Scheme != "https" {
		return nil, notHTTPS
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Cache-Control", "no-cache")
	request.Header.Set("User-Agent", "proxyauthk8s")
	return request, nil
}

// SetClient authenticates a request as a client by client_secret_basic:
// form-encoded before they are joined (RFC 6749 section 2.3.1).
func SetClient(request *http.Request, id, secret string) {
	request.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
}

// Response is what a provider answered, whatever its status.
type Response struct {
	Status      int
	ContentType string
	// Body is read of a 200 and of a 4xx, in which OAuth reports errors.
	Body []byte
}

// Unexpected is the fault of a status that should not be.
func (r *Response) Unexpected() Fault {
	return Fault(fmt.Sprintf("it answered with status %d", r.Status))
}

// Do sends a request and has read judge the answer. It returns what read
// returns, or a Fault when there was nothing to read. When a connection that was
// kept turns out to be gone it sends the request once more on a new one, a form
// too: what is asked for here may be asked twice.
//
// An answer that is large keeps its slot (boundedjson.Reader) until read returns.
func (c *Client) Do(request *http.Request, read func(*Response) error) error {
	if request.URL.Scheme != "https" {
		return notHTTPS
	}
	kept := false
	traced := request.WithContext(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { kept = info.Reused },
	}))
	response, release, err := c.once(traced)
	if err != nil {
		c.CloseIdleConnections() // they may lead nowhere any more
		if err != connectionFailed || !kept {
			return err
		}
		if request.GetBody != nil {
			if request.Body, err = request.GetBody(); err != nil {
				return connectionFailed
			}
		}
		if response, release, err = c.once(request); err != nil {
			return err
		}
	}
	defer release()
	return read(response)
}

// once sends a request once. release must be called when the response is no longer
// needed, unless there is an error, which is a Fault.
func (c *Client) once(request *http.Request) (response *Response, release func(), err error) {
	answer, err := c.Client.Do(request)
	if err != nil {
		return nil, nil, describe(err)
	}
	defer answer.Body.Close()
	response = &Response{Status: answer.StatusCode, ContentType: answer.Header.Get("Content-Type")}
	if response.Status != http.StatusOK && response.Status/100 != 4 {
		return response, func() {}, nil
	}
	if response.Body, release, err = c.answers.Read(request.Context(), answer.Body); err != nil {
		return nil, nil, describe(err)
	}
	return response, release, nil
}

// describe says what kind of trouble a request met.
func describe(err error) Fault {
	switch {
	case errors.Is(err, boundedjson.ErrTooLarge):
		return TooLarge
	case errors.Is(err, boundedjson.ErrNoSlot):
		return noSlot
	case errors.Is(err, context.Canceled):
		return "it is no longer asked"
	case neterr.IsTimeout(err): // that of a name server too
		return "it did not answer in time"
	}
	switch neterr.KindOf(err) {
	case neterr.Denied:
		return "it is at an address to which this proxy does not connect (denied_targets)"
	case neterr.Resolve:
		return "its name cannot be resolved"
	case neterr.Certificate:
		return "its certificate is not trusted"
	case neterr.Handshake:
		return "the TLS handshake failed"
	case neterr.Refused:
		return "it refused the connection"
	}
	return connectionFailed
}
