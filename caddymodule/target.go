package caddymodule

import (
	"net/http"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// requestTarget is the request target as the client sent it, cut at the query.
// The parsed URL is not used: net/http re-encodes some characters, and the
// path must go upstream byte for byte (URL-3).
type requestTarget struct {
	path  string
	query string
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
	t.path, t.query, _ = strings.Cut(raw, "?")
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
