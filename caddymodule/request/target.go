package request

import (
	"net/http"
	"strings"
)

// target is the request target as the client sent it, cut at the query.
// The parsed URL is not used: net/http re-encodes some characters, and the
// path must go upstream byte for byte (URL-3).
type target struct {
	path  string
	query string
}

// targetOf reads the origin form and the absolute form (RFC 9112 section 3.2).
func targetOf(r *http.Request) target {
	raw := r.RequestURI
	if !strings.HasPrefix(raw, "/") {
		_, rest, ok := strings.Cut(raw, "://")
		if !ok {
			return target{path: raw}
		}
		slash := strings.IndexAny(rest, "/?")
		if slash < 0 {
			return target{}
		}
		raw = rest[slash:]
	}
	var t target
	t.path, t.query, _ = strings.Cut(raw, "?")
	return t
}

// hasSpace reports white space or a control character. Only an HTTP/2 client
// can send them, and an HTTP/1.1 request line cannot carry them.
func hasSpace(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}
