package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

const (
	h1 = "h1"
	h2 = "h2"
	h3 = "h3" // for a proxy that serves it (http3_test.go)
)

// call is one request in terms of every protocol.
type call struct {
	// method is GET when empty.
	method string
	// cluster and path make the target, unless that is set.
	cluster, path, target string
	// host is the proxy's own when empty.
	host string
	// lines are header lines, `Name: value`, spelled as they go to the wire on
	// HTTP/1.1 and in lower case on HTTP/2 and HTTP/3.
	lines []string
	body  []byte
}

// with adds header lines.
func (c call) with(lines ...string) call {
	c.lines = append(slices.Clip(c.lines), lines...)
	return c
}

// bearer adds a token.
func (c call) bearer(token string) call { return c.with("Authorization: Bearer " + token) }

// as adds alice's token.
func (c call) asAlice() call { return c.bearer(token(nil)) }

func (c call) requestTarget() string {
	if c.target != "" {
		return c.target
	}
	return "/clusters/" + ns + "/" + c.cluster + c.path
}

// h1 is the request as bytes.
func (c call) h1(px *proxy.Proxy) []byte {
	method, host, lines := c.method, c.host, slices.Clone(c.lines)
	if method == "" {
		method = http.MethodGet
	}
	if host == "" {
		host = px.Host
	}
	if len(c.body) > 0 {
		lines = append(lines, "Content-Length: "+strconv.Itoa(len(c.body)))
	}
	return append(rawclient.Request(method, c.requestTarget(), host, lines...), c.body...)
}

// h2 is the request as header fields, of HTTP/2 and HTTP/3.
func (c call) h2(px *proxy.Proxy) []rawclient.Field {
	method, host := c.method, c.host
	if method == "" {
		method = http.MethodGet
	}
	if host == "" {
		host = px.Host
	}
	fields := rawclient.Fields(method, host, c.requestTarget())
	for _, line := range c.lines {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, rawclient.Field{Name: strings.ToLower(name), Value: strings.TrimLeft(value, " ")})
	}
	return fields
}

// do sends a request on a connection of its own.
func do(t *testing.T, px *proxy.Proxy, protocol string, c call) rawclient.Answer {
	t.Helper()
	switch protocol {
	case h2:
		conn := rawclient.MustDialH2(t, px.Host, px.CA.Pool())
		defer conn.Close()
		return conn.Do(t, c.h2(px), c.body)
	case h3:
		conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{})
		defer conn.Close()
		return conn.Do(t, c.h2(px), c.body)
	}
	return rawclient.Do(t, px.Host, px.CA.Pool(), c.h1(px))
}

// bothProtocols runs a test with an HTTP/1.1 and an HTTP/2 client.
func bothProtocols(t *testing.T, f func(t *testing.T, protocol string)) {
	t.Helper()
	for _, protocol := range []string{h1, h2} {
		t.Run(protocol, func(t *testing.T) { f(t, protocol) })
	}
}

// way is one combination of client protocol and cluster.
type way struct {
	px       *proxy.Proxy
	protocol string
	cluster  string
	up       *rawserver.Server
}

func (w way) frontProxy() bool { return strings.HasPrefix(w.cluster, "cluster") }

func (w way) do(t *testing.T, c call) rawclient.Answer {
	t.Helper()
	w.up.Reset()
	if c.cluster == "" {
		c.cluster = w.cluster
	}
	return do(t, w.px, w.protocol, c)
}

// everyWay runs a test through every combination of client protocol, upstream
// protocol and mode.
func everyWay(t *testing.T, px *proxy.Proxy, f func(t *testing.T, w way)) {
	t.Helper()
	for _, cluster := range []string{fpH2, fpH1, ptH2, ptH1} {
		for _, protocol := range []string{h1, h2} {
			t.Run(protocol+" to "+cluster, func(t *testing.T) {
				f(t, way{px: px, protocol: protocol, cluster: cluster, up: shared.ups[cluster]})
			})
		}
	}
}

// wantAlice fails unless a request was relayed whole and as alice: her
// identity in FrontProxy, her bearer in Passthrough, and no header of the kind
// that asserts identities beside it, in any spelling.
func wantAlice(t *testing.T, w way, r *rawserver.Request, bearer string) {
	t.Helper()
	if !w.frontProxy() {
		if got := r.Lines("Authorization"); !slices.Equal(got, []string{"Bearer " + bearer}) {
			t.Errorf("Authorization at the upstream: %q", got)
		}
		if got := folded(r, "x-remote-"); len(got) > 0 {
			t.Errorf("identity headers in Passthrough: %v", got)
		}
		return
	}
	if diff := cmp.Diff(alice(), r.Identity.Unprefixed(prefix)); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if got := r.Lines("Authorization"); len(got) > 0 {
		t.Error("Authorization went upstream in FrontProxy")
	}
	want := []string{
		"x-remote-extra-example-test%2fscopes: read", "x-remote-extra-example-test%2fscopes: write",
		"x-remote-group: t:dev", "x-remote-group: t:ops", "x-remote-user: t:alice",
	}
	if diff := cmp.Diff(want, folded(r, "x-remote-")); diff != "" {
		t.Errorf("identity headers (-want +got):\n%s", diff)
	}
}

// folded are the header lines whose name begins with that once it is
// lower-cased and '_' and '.' are read as '-', the loosest reading any server
// behind an apiserver has; names are given in that reading, sorted.
func folded(r *rawserver.Request, prefix string) []string {
	fold := strings.NewReplacer("_", "-", ".", "-")
	var found []string
	for _, f := range r.Fields {
		if name := fold.Replace(strings.ToLower(f.Name)); strings.HasPrefix(name, prefix) {
			found = append(found, name+": "+f.Value)
		}
	}
	slices.Sort(found)
	return found
}

// wantStatus fails unless the answer is one of the proxy's own (ANS-1): a v1
// Status with that code and text, the Warning that kubectl shows,
// WWW-Authenticate on a 401 and no Retry-After (ANS-2).
func wantStatus(t *testing.T, a rawclient.Answer, code int, contains string) {
	t.Helper()
	if a.Code != code {
		t.Errorf("code %d, want %d: %s", a.Code, code, a.Body)
		return
	}
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	var status metav1.Status
	decoder := json.NewDecoder(strings.NewReader(a.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&status); err != nil {
		t.Errorf("the body is no Status: %v: %q", err, a.Body)
		return
	}
	if rest, _ := io.ReadAll(io.MultiReader(decoder.Buffered())); len(bytes.TrimSpace(rest)) > 0 {
		t.Errorf("text after the Status: %q", rest)
	}
	if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure || status.Code != int32(code) {
		t.Errorf("status %+v", status)
	}
	if status.Reason == "" || status.Message == "" || !strings.Contains(status.Message, contains) {
		t.Errorf("reason %q, message %q, want one with %q", status.Reason, status.Message, contains)
	}
	wantWarning(t, a, status.Message)
	if got := a.Header.Values("Retry-After"); len(got) > 0 {
		t.Errorf("Retry-After: %q", got)
	}
	authenticate := a.Header.Values("WWW-Authenticate")
	if want := code == http.StatusUnauthorized; want != slices.Equal(authenticate, []string{"Bearer"}) || !want && len(authenticate) > 0 {
		t.Errorf("WWW-Authenticate of a %d: %q", code, authenticate)
	}
}

// wantWarning fails unless there is exactly one Warning with that message, as
// ANS-1 writes it.
func wantWarning(t *testing.T, a rawclient.Answer, message string) {
	t.Helper()
	want := fmt.Sprintf(`299 - "proxyauth: %s"`, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(message))
	if got := a.Header.Values("Warning"); !slices.Contains(got, want) || len(want) > 512 {
		t.Errorf("warnings %q, want %q", got, want)
	}
}

// refused sends a request and expects a Status and an upstream that saw
// nothing.
func (w way) refused(t *testing.T, c call, code int, contains string) {
	t.Helper()
	a := w.do(t, c)
	wantStatus(t, a, code, contains)
	w.up.None(t)
}

// relayed sends a request and returns what the upstream saw of it.
func (w way) relayed(t *testing.T, c call) *rawserver.Request {
	t.Helper()
	a := w.do(t, c)
	if a.Code != http.StatusOK {
		t.Fatalf("code %d: %s", a.Code, a.Body)
	}
	return w.up.Only(t)
}

// wantHTTP1 fails unless a request came over HTTP/1.1.
func wantHTTP1(t *testing.T, r *rawserver.Request) {
	t.Helper()
	if r.Protocol != "http/1.1" {
		t.Errorf("%v: went over %q", r, r.Protocol)
	}
}

func readAll(r io.Reader) string {
	b, _ := io.ReadAll(r)
	return string(b)
}
