package caddymodule

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// requestTarget is the request target as the client sent it, cut at the query.
// The parsed URL is not used: net/http re-encodes some characters, and the
// path must go upstream byte for byte (URL-3).
type requestTarget struct {
	path     string
	query    string
	hasQuery bool
}

// targetOf reads the origin form and the absolute form (RFC 9112 section 3.2).
func targetOf(r *http.Request) requestTarget {
	raw := r.RequestURI
	if !strings.HasPrefix(raw, "/") {
		_, rest, ok := strings.Cut(raw, "://")
		if !ok {
			return requestTarget{path: raw}
		}
		slash := strings.IndexAny(rest, "/?")
		if slash < 0 {
			return requestTarget{}
		}
		raw = rest[slash:]
	}
	var t requestTarget
	t.path, t.query, t.hasQuery = strings.Cut(raw, "?")
	return t
}

// hasSpace reports white space or a control character. Only an HTTP/2 client
// can send them, and an HTTP/1.1 request line cannot carry them.
func (t requestTarget) hasSpace() bool {
	for _, s := range []string{t.path, t.query} {
		for i := 0; i < len(s); i++ {
			if s[i] <= ' ' || s[i] == 0x7f {
				return true
			}
		}
	}
	return false
}

func splitClusterPath(raw string) (k8swatch.Key, string, bool) {
	namespace, name, rest, ok := access.SplitClusterPath(raw)
	return k8swatch.Key{Namespace: namespace, Name: name}, rest, ok
}

// upstreamURL is the URL whose request line carries the base path and the
// client's path and query unchanged.
//
// net/http writes URL.EscapedPath, which is the raw path when it is a valid
// encoding of the decoded one. For other bytes Opaque is written as it is, but
// an Opaque that begins with two slashes would be read as an authority, so
// that form carries the real authority in front.
func upstreamURL(t k8swatch.Target, rt requestTarget) *url.URL {
	raw := t.BasePath + rt.path
	u := &url.URL{Scheme: "https", Host: t.Host, RawQuery: rt.query, ForceQuery: rt.hasQuery && rt.query == ""}
	if path, err := url.PathUnescape(raw); err == nil {
		u.Path, u.RawPath = path, raw
		if u.EscapedPath() == raw {
			return u
		}
	}
	u.Path, u.RawPath = "", ""
	u.Opaque = raw
	if strings.HasPrefix(raw, "//") {
		u.Opaque = "//" + t.Host + raw
	}
	return u
}
