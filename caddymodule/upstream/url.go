package upstream

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// SetURL points r at target: the path base of the target, then rest, the
// escaped path that follows /clusters/<ns>/<name>, then the query r has, byte
// for byte (URL-3). rest begins with a slash. Host becomes the target's.
//
// net/url escapes characters that it would not have written itself (`"`, `<`,
// `^`, `{`, `|`, é). It sends Opaque unchanged, but takes an Opaque that begins
// with // for an absolute URI on another host. Such a path gets the target's host
// in front, which HTTP/1.1 servers accept (RFC 9112 section 3.2.2) and HTTP/2
// does not see. A space or control character, which only HTTP/2 clients can send,
// is escaped: in an HTTP/1.1 request line it would end the path.
func SetURL(r *http.Request, target k8swatch.Target, rest string) {
	raw := target.BasePath + rest
	u := &url.URL{Scheme: "https", Host: target.Host}
	if r.URL != nil {
		u.RawQuery = strings.ReplaceAll(r.URL.RawQuery, " ", "%20")
		u.ForceQuery = r.URL.ForceQuery
	}
	if path, err := url.PathUnescape(raw); err == nil {
		u.Path, u.RawPath = path, raw
	} else {
		u.Path = raw
	}
	if u.EscapedPath() != raw && !hasSpaceOrControl(raw) {
		u.Opaque = raw
		if strings.HasPrefix(raw, "//") {
			u.Opaque = "//" + target.Host + raw
		}
	}
	r.URL = u
	r.Host = target.Host
}

func hasSpaceOrControl(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}
