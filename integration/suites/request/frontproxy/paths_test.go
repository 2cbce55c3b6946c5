package frontproxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// URL-4: the one path function reads a request as kube-apiserver does. Each
// request of pathCases goes as bytes to a real apiserver, whose answer and
// audit log say how it read it; then through the proxy over HTTP/1.1 and
// HTTP/2, where what is let through is answered and audited just the same.
func TestURL4PathsAgreeWithApiserver(t *testing.T) {
	w := get(t)
	admin := w.plain.Kubectl(t, "")
	admin.MustRun(t, "create", "clusterrolebinding", "robot", "--clusterrole=cluster-admin", "--user=proxyauth:robot")
	admin.MustRun(t, "create", "namespace", "a")
	admin.MustRun(t, "run", "x", "-n", "a", "--image=none.invalid/none")
	w.plain.MustAllow(t, "proxyauth:robot", nil, authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "a"})

	senders := w.pathSenders(t)
	answers := make([]map[string]rawclient.Answer, len(pathCases))
	for i, c := range pathCases {
		answers[i] = map[string]rawclient.Answer{}
		for way, send := range senders {
			answers[i][way] = send(c.method, c.target, fmt.Sprintf("path-%d-%s", i, way))
		}
	}
	events := w.pathEvents(t, func(byAgent map[string]auditv1.Event) bool {
		for i, c := range pathCases {
			for way := range senders {
				_, found := byAgent[fmt.Sprintf("path-%d-%s", i, way)]
				if want := c.read != unread && (way == "direct" || !c.refused()); want && !found {
					return false
				}
			}
		}
		return true
	})
	reached, refused := 0, 0
	for i, c := range pathCases {
		t.Run(c.method+" "+c.target, func(t *testing.T) {
			// Directly, as the apiserver reads it.
			direct, seen := answers[i]["direct"], unread
			event, audited := events[fmt.Sprintf("path-%d-direct", i)]
			if audited {
				seen = eventText(&event)
			}
			if direct.Code != c.status || seen != c.read {
				t.Errorf("the apiserver: {%q, %q, %d, %q},", c.method, c.target, direct.Code, seen)
			}
			if ours := c.ours(t); ours != c.proxied() {
				t.Errorf("the path function reads %q, want %q", ours, c.proxied())
			}
			for _, way := range []string{"h1", "h2"} {
				answer := answers[i][way]
				through, reachedIt := events[fmt.Sprintf("path-%d-%s", i, way)]
				switch {
				case c.refused():
					refused++
					reset := way == "h2" && c.proxied() == badEscape && answer.Code == 0
					if answer.Code != http.StatusBadRequest && !reset || reachedIt {
						t.Errorf("%s through the proxy: %d, reached the apiserver: %v", way, answer.Code, reachedIt)
					}
					if c.proxied() == dotSegment && !strings.Contains(answer.Body, "path has a dot segment") {
						t.Errorf("%s through the proxy: %s", way, answer.Body)
					}
				case answer.Code != direct.Code, reachedIt != audited:
					t.Errorf("%s through the proxy: %d, audited: %v; directly %d, %v", way, answer.Code, reachedIt, direct.Code, audited)
				case audited && (eventText(&through) != seen || through.RequestURI != event.RequestURI):
					t.Errorf("%s through the proxy: %s as %q, directly %s as %q", way, through.RequestURI, eventText(&through), event.RequestURI, seen)
				default:
					reached++
				}
			}
		})
	}
	t.Logf("%d requests: %d answers through the proxy are the apiserver's, %d are the proxy's 400", len(pathCases), reached, refused)
}

const (
	// unread is a request that has no event in the audit log: the apiserver
	// gives up before it knows what it is.
	unread = "-"
	// dotSegment and badEscape are what the path function refuses.
	dotSegment = "dot segment"
	badEscape  = "bad escape"
)

// pathCase is a request and what a real apiserver makes of it.
type pathCase struct {
	method, target string
	status         int
	read           string
}

func (c pathCase) path() (path string, query url.Values) {
	path, raw, _ := strings.Cut(c.target, "?")
	query, _ = url.ParseQuery(raw)
	return path, query
}

// proxied is what the path function has to say of it.
func (c pathCase) proxied() string {
	path, _ := c.path()
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return badEscape
	}
	for segment := range strings.SplitSeq(decoded, "/") {
		if segment == "." || segment == ".." {
			return dotSegment
		}
	}
	return c.read
}

// refused says that the proxy answers by itself.
func (c pathCase) refused() bool { return c.proxied() == dotSegment || c.proxied() == badEscape }

func (c pathCase) ours(t *testing.T) string {
	t.Helper()
	path, query := c.path()
	p, err := access.ParsePath(path)
	switch {
	case access.IsDotSegment(err):
		return dotSegment
	case err != nil:
		return badEscape
	}
	// The apiserver serves some of these, which is why an allow list must not.
	if p.EmptySegment != strings.Contains(p.Decoded, "//") {
		t.Errorf("EmptySegment is %v for %q", p.EmptySegment, p.Decoded)
	}
	info, err := p.Info(c.method, query)
	if err != nil {
		return unread
	}
	if !info.IsResourceRequest {
		return info.Verb
	}
	return readText(info.Verb, info.APIGroup, info.APIVersion, info.Resource, info.Subresource, info.Namespace, info.Name)
}

func eventText(e *auditv1.Event) string {
	if r := e.ObjectRef; r != nil {
		return readText(e.Verb, r.APIGroup, r.APIVersion, r.Resource, r.Subresource, r.Namespace, r.Name)
	}
	return e.Verb
}

// readText is a line such as "get v1 pods/exec -n a x".
func readText(verb, group, version, resource, subresource, namespace, name string) string {
	text := strings.TrimSpace(verb) + " "
	if group != "" {
		text += group + "/"
	}
	text += version + " " + resource
	if subresource != "" {
		text += "/" + subresource
	}
	if namespace != "" {
		text += " -n " + namespace
	}
	if name != "" {
		text += " " + name
	}
	return text
}

type pathSender func(method, target, agent string) rawclient.Answer

// pathSenders send a request as bytes to the apiserver itself and, as the same
// user, through the proxy. A good answer is left alone after its head: it may
// be a watch.
func (w *world) pathSenders(t *testing.T) map[string]pathSender {
	token := w.idp.Token(oidc.Robot, nil)
	certificate := pki.Must(w.plain.FrontProxy()).TLS()
	h2 := rawclient.MustDialH2(t, w.px.Host, w.px.CA.Pool())
	return map[string]pathSender{
		"direct": func(method, target, agent string) rawclient.Answer {
			c, err := rawclient.Dial(t.Context(), w.plain.Host, "", w.plain.PKI.ServerCA.Pool(), certificate)
			if err != nil {
				t.Fatal(err)
			}
			return overH1(t, c, method, rawclient.Request(method, target, w.plain.Host,
				"X-Remote-User: proxyauth:robot", "X-Remote-Group: proxyauth:machines", "User-Agent: "+agent))
		},
		"h1": func(method, target, agent string) rawclient.Answer {
			return overH1(t, rawclient.MustDial(t, w.px.Host, w.px.CA.Pool()), method, rawclient.Request(method, "/clusters/"+ns+"/prod"+target, w.px.Host,
				"Authorization: Bearer "+token, "User-Agent: "+agent))
		},
		"h2": func(method, target, agent string) rawclient.Answer {
			return overH2(t, h2, rawclient.Fields(method, w.px.Host, "/clusters/"+ns+"/prod"+target,
				rawclient.Field{Name: "authorization", Value: "Bearer " + token}, rawclient.Field{Name: "user-agent", Value: agent}))
		},
	}
}

func overH1(t *testing.T, c *rawclient.Conn, method string, request []byte) rawclient.Answer {
	t.Helper()
	defer c.Close()
	if err := c.Send(request); err != nil {
		t.Fatal(err)
	}
	resp, err := c.Head(method)
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return withBody(t, resp.StatusCode, resp.Header, resp.Body)
}

func overH2(t *testing.T, c *rawclient.H2, fields []rawclient.Field) rawclient.Answer {
	t.Helper()
	stream, err := c.Open(fields, true)
	if err != nil {
		t.Fatal(err)
	}
	code, header, err := stream.Head()
	if err != nil {
		// Go's HTTP/2 server resets a stream whose path is malformed.
		return rawclient.Answer{}
	}
	defer func() { _ = stream.Reset() }()
	return withBody(t, code, header, stream)
}

func withBody(t *testing.T, code int, header http.Header, r io.Reader) rawclient.Answer {
	t.Helper()
	answer := rawclient.Answer{Code: code, Header: header}
	if code >= 400 {
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body = string(body)
	}
	return answer
}

// pathEvents waits until the audit log of the apiserver is complete and gives
// its events by user agent.
func (w *world) pathEvents(t *testing.T, complete func(map[string]auditv1.Event) bool) map[string]auditv1.Event {
	t.Helper()
	kube.MustWhoAmI(t, w.px.Client("h1"), w.url("prod"), kube.Bearer(w.idp.Token(oidc.Robot, nil)))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		all, err := w.plain.AuditEvents()
		if err != nil {
			t.Fatal(err)
		}
		byAgent := map[string]auditv1.Event{}
		for _, e := range all {
			if strings.HasPrefix(e.UserAgent, "path-") {
				byAgent[e.UserAgent] = e
			}
		}
		if complete(byAgent) || time.Now().After(deadline) {
			return byAgent
		}
	}
}
