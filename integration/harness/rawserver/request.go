package rawserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// Field is one header line.
type Field struct{ Name, Value string }

// Identity is what the request-header authenticator of kube-apiserver derives
// (uid headers included, as with --requestheader-uid-headers).
type Identity struct {
	User, UID string
	Groups    []string
	Extra     map[string][]string
}

// Unprefixed removes one leading prefix from user and groups. A value without
// it is returned as "!" and itself, so that no comparison is true by luck.
func (i *Identity) Unprefixed(prefix string) *Identity {
	if i == nil {
		return nil
	}
	cut := func(s string) string {
		if rest, ok := strings.CutPrefix(s, prefix); ok {
			return rest
		}
		return "!" + s
	}
	u := &Identity{User: cut(i.User), UID: i.UID, Extra: i.Extra}
	for _, g := range i.Groups {
		u.Groups = append(u.Groups, cut(g))
	}
	return u
}

// Request is one recorded request.
type Request struct {
	At time.Time
	// Protocol is what ALPN negotiated: "h2", "http/1.1" or "".
	Protocol string
	// Serial and CommonName are of the client certificate, if one came.
	Serial     *big.Int
	CommonName string
	Method     string
	// Target is the request target as sent.
	Target string
	Host   string
	// Fields are the header lines: in order and spelling as sent on HTTP/1.1;
	// on HTTP/2 by name, without the pseudo-header fields.
	Fields []Field
	// Header is the same as net/http presents it.
	Header http.Header
	// Identity is nil for NO-IDENTITY.
	Identity *Identity
	// Probe marks a request that looks like the proxy's own: a SelfSubjectReview
	// of its probe user, or a SelfSubjectReview or GET /version without a user.
	Probe bool

	body    io.Reader
	trailer func() http.Header // HTTP/2 only
	mu      sync.Mutex
	raw     bytes.Buffer // HTTP/1.1 only
	read    int64
	ended   bool
}

// rawLimit bounds what is kept of one request.
const rawLimit = 4 << 20

// Raw is the request as it came, HTTP/1.1 only: request line, header, and of
// the body, framing included, what has arrived.
func (r *Request) Raw() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.raw.Bytes())
}

// Text is everything that is known of the request, for searches: the raw bytes
// or, on HTTP/2, its fields.
func (r *Request) Text() string {
	if raw := r.Raw(); len(raw) > 0 {
		return string(raw)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\nhost: %s\n", r.Method, r.Target, r.Host)
	for _, f := range r.Fields {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String()
}

// String is a short description for failures.
func (r *Request) String() string {
	user := "NO-IDENTITY"
	if r.Identity != nil {
		user = r.Identity.User
	}
	return fmt.Sprintf("%s %s (%s, as %s)", r.Method, r.Target, r.Protocol, user)
}

// Lines are the values of header lines with that name, in any spelling that
// differs by case alone.
func (r *Request) Lines(name string) []string {
	var values []string
	for _, f := range r.Fields {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

// Like are the header lines whose name, lower-cased and with _ as -, begins
// with that: the loosest reading any server has.
func (r *Request) Like(prefix string) []Field {
	var found []Field
	for _, f := range r.Fields {
		if strings.HasPrefix(strings.ReplaceAll(strings.ToLower(f.Name), "_", "-"), prefix) {
			found = append(found, f)
		}
	}
	return found
}

// Read reads the body.
func (r *Request) Read(p []byte) (int, error) {
	if r.body == nil {
		return 0, io.EOF
	}
	n, err := r.body.Read(p)
	r.mu.Lock()
	r.read += int64(n)
	r.ended = r.ended || err == io.EOF
	r.mu.Unlock()
	return n, err
}

// Trailer is what followed the body, once that was read to its end. On HTTP/2
// alone: on HTTP/1.1 trailers are among the Raw bytes.
func (r *Request) Trailer() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trailer == nil || !r.ended {
		return nil
	}
	return r.trailer()
}

// BodyBytes is how much of the body has been read.
func (r *Request) BodyBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

func (r *Request) capture(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw.Write(p[:min(len(p), rawLimit-r.raw.Len())])
}

// newRequest records the head of a request. The identity is judged on what
// net/http made of it, as in a real apiserver.
func (s *Server) newRequest(tc *tls.Conn, hr *http.Request, fields []Field) *Request {
	state := tc.ConnectionState()
	r := &Request{
		At: time.Now(), Protocol: state.NegotiatedProtocol,
		Method: hr.Method, Target: hr.RequestURI, Host: hr.Host, Header: hr.Header.Clone(), Fields: fields,
	}
	if len(state.PeerCertificates) > 0 {
		r.Serial, r.CommonName = state.PeerCertificates[0].SerialNumber, state.PeerCertificates[0].Subject.CommonName
	}
	if fields == nil {
		for _, name := range sortedNames(hr.Header) {
			for _, v := range hr.Header[name] {
				r.Fields = append(r.Fields, Field{strings.ToLower(name), v})
			}
		}
	}
	// The authenticator removes the headers it reads.
	probe := &http.Request{Header: hr.Header.Clone(), TLS: &state}
	if answer, ok, err := s.authn.AuthenticateRequest(probe.WithContext(context.Background())); err == nil && ok {
		r.Identity = &Identity{User: answer.User.GetName(), UID: answer.User.GetUID(), Groups: answer.User.GetGroups(), Extra: answer.User.GetExtra()}
	}
	return r
}

func sortedNames(h http.Header) []string {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func newAuthenticator(ca *pki.CA, name string) authenticator.Request {
	list := func(values ...string) headerrequest.StringSliceProvider {
		return headerrequest.StaticStringSlice(values)
	}
	verify := func() (x509.VerifyOptions, bool) {
		return x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
	}
	return headerrequest.NewDynamicVerifyOptionsSecure(verify, list(name),
		list("X-Remote-User"), list("X-Remote-Uid"), list("X-Remote-Group"), list("X-Remote-Extra-"))
}

func clientRequest(name string) pki.Request {
	return pki.Request{CommonName: name, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

func bigInt(n int64) *big.Int { return big.NewInt(n) }

const reviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// isOwn says whether the server answers by itself, unless it is Bare.
func isOwn(r *Request) bool {
	path, _, _ := strings.Cut(r.Target, "?")
	return strings.HasSuffix(path, "/version") || r.Method == http.MethodPost && strings.HasSuffix(path, reviewPath)
}

func isProbe(r *Request) bool {
	if !isOwn(r) {
		return false
	}
	if r.Header.Get("Authorization") == "" && r.Header.Get("X-Remote-User") == "" {
		return true
	}
	return strings.HasSuffix(r.Header.Get("X-Remote-User"), "proxyauth-probe")
}

// WhoAmI answers a SelfSubjectReview and /version as an apiserver does, and
// every other request with the identity in JSON.
func WhoAmI(w *Writer, r *Request) {
	path, _, _ := strings.Cut(r.Target, "?")
	_, _ = io.Copy(io.Discard, r)
	switch {
	case strings.HasSuffix(path, "/version"):
		w.JSON(http.StatusOK, map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
	case strings.HasSuffix(path, reviewPath) && r.Identity == nil:
		Unauthorized(w, r)
	case strings.HasSuffix(path, reviewPath):
		review := authenticationv1.SelfSubjectReview{}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "SelfSubjectReview"
		review.Status.UserInfo = authenticationv1.UserInfo{
			Username: r.Identity.User, UID: r.Identity.UID, Groups: append(slices.Clone(r.Identity.Groups), "system:authenticated"),
			Extra: map[string]authenticationv1.ExtraValue{},
		}
		for key, values := range r.Identity.Extra {
			review.Status.UserInfo.Extra[key] = values
		}
		w.JSON(http.StatusCreated, review)
	default:
		w.JSON(http.StatusOK, r.Identity)
	}
}

// Unauthorized is the 401 of an apiserver.
func Unauthorized(w *Writer, r *Request) {
	w.JSON(http.StatusUnauthorized, map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": "Unauthorized", "reason": "Unauthorized", "code": 401,
	})
}

// JSON answers with a value.
func (w *Writer) JSON(code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Respond(code, b, Field{"Content-Type", "application/json"})
}
