package upstream

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// ErrForeignRedirect says that an answer sends the client to another place than
// the cluster's own URL (502, RELAY-4).
var ErrForeignRedirect = errors.New("the apiserver redirects to another place")

// maxLocation bounds a Location that is looked at, in bytes. Proxies and servers
// commonly refuse longer request lines.
const maxLocation = 8 << 10

// clustersPath is where the path form of every cluster begins (URL-1).
const clustersPath = "/clusters/"

// Redirects knows where the clients of one cluster find it, and rewrites the
// redirects of its apiserver to there. Clients repeat a request where a redirect
// points: client-go with its body, and with the bearer when the host is the
// same. So a redirect leads to the same cluster or nowhere.
type Redirects struct {
	// Target is the apiserver. A Location may name its host, by https, and must
	// lie under its path base.
	Target k8swatch.Target
	// Prefix is what stands before the apiserver's paths in the URL that clients
	// use: /clusters/<namespace>/<name> in the path form, empty in the host form.
	Prefix string
}

// Rewrite changes the headers of an answer whose status is code. requestPath is
// the escaped path of the request as it went upstream, path base included, by
// which a relative Location is resolved (RFC 9110 section 10.2.2).
//
// Location goes from answers that do not redirect, so that no client finds a
// meaning in it. A Refresh, which browsers follow from any answer, and a Location
// to another place are an ErrForeignRedirect, and the answer must not be passed
// on.
func (d Redirects) Rewrite(h http.Header, code int, requestPath string) error {
	if hasHeader(h, "Refresh") {
		return ErrForeignRedirect
	}
	values := take(h, "Location")
	if !redirects(code) || len(values) == 0 {
		return nil
	}
	if len(values) > 1 {
		return ErrForeignRedirect
	}
	location, ok := d.rewrite(values[0], requestPath)
	if !ok {
		return ErrForeignRedirect
	}
	if location != "" {
		h["Location"] = []string{location}
	}
	return nil
}

// redirects reports whether clients make use of the Location of an answer (RFC
// 9110 section 10.2.2).
func redirects(code int) bool {
	return code >= 300 && code < 400 || code == http.StatusCreated
}

// hasHeader reports whether h has a header in any spelling of its name. Over
// HTTP/1.1 net/http makes names canonical, but a map may have been filled by
// something else.
func hasHeader(h http.Header, name string) bool {
	for key := range h {
		if strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// take removes a header in every spelling of its name, and returns its values.
func take(h http.Header, name string) []string {
	var values []string
	for key := range h {
		if strings.EqualFold(key, name) {
			values = append(values, h[key]...)
			delete(h, key)
		}
	}
	return values
}

// rewrite returns a Location as clients must see it: an absolute path, never
// beginning with two slashes, below the prefix. It is empty for an empty one.
func (d Redirects) rewrite(location, requestPath string) (string, bool) {
	if len(location) > maxLocation || !plainReference(location) {
		return "", false
	}
	if location == "" {
		return "", true
	}
	path, suffix := cutSuffix(location)
	path, ok := d.pathOf(path, requestPath)
	if !ok || !plainPath(path) {
		return "", false
	}
	if d.Prefix != "" && strings.HasPrefix(path, clustersPath) && d.Target.BasePath == "" {
		// Something behind the apiserver knows its public URL. Another
		// cluster's is another place.
		if path == d.Prefix || strings.HasPrefix(path, d.Prefix+"/") {
			return path + suffix, true
		}
		return "", false
	}
	rest, ok := strings.CutPrefix(path, d.Target.BasePath)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	if rest == "" {
		rest = "/"
	}
	if strings.HasPrefix(rest, "//") {
		return "", false // without a prefix it would be another host
	}
	if d.Prefix == "" && strings.HasPrefix(rest, clustersPath) {
		return "", false // another cluster, where the host has the path form too
	}
	return d.Prefix + rest + suffix, true
}

// plainReference reports whether every byte may stand in a URL reference. White
// space, control characters and a backslash are read by browsers in ways of
// their own; what is beyond ASCII has no place in a header.
func plainReference(location string) bool {
	for i := 0; i < len(location); i++ {
		if c := location[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return false
		}
	}
	return true
}

// cutSuffix cuts a reference before its query and fragment.
func cutSuffix(location string) (path, suffix string) {
	if i := strings.IndexAny(location, "?#"); i >= 0 {
		return location[:i], location[i:]
	}
	return location, ""
}

// pathOf returns the absolute path that a reference without query and fragment
// means on the target, or false where it means another host.
func (d Redirects) pathOf(reference, requestPath string) (string, bool) {
	switch {
	case reference == "":
		return requestPath, true // a query alone
	case strings.HasPrefix(reference, "//"):
		return "", false
	case reference[0] == '/':
		return reference, true
	}
	scheme, rest, absolute := strings.Cut(reference, ":")
	if absolute && !strings.Contains(scheme, "/") {
		authority, ok := strings.CutPrefix(rest, "//")
		if !ok || !strings.EqualFold(scheme, "https") {
			return "", false
		}
		path := "/"
		if slash := strings.IndexByte(authority, '/'); slash >= 0 {
			authority, path = authority[:slash], authority[slash:]
		}
		return path, sameAuthority(authority, d.Target.Host)
	}
	return requestPath[:strings.LastIndexByte(requestPath, '/')+1] + reference, true
}

// sameAuthority compares two authorities of https URLs. User information makes
// them different.
func sameAuthority(a, b string) bool {
	return strings.EqualFold(withoutDefaultPort(a), withoutDefaultPort(b))
}

func withoutDefaultPort(authority string) string { return strings.TrimSuffix(authority, ":443") }

// plainPath reports whether a path has no dot segment and no backslash, also
// once it is percent-decoded (twice, since what stands behind an apiserver may
// decode again), and begins with a slash.
func plainPath(path string) bool {
	for range 3 {
		if path == "" || path[0] != '/' || strings.IndexByte(path, '\\') >= 0 {
			return false
		}
		for segment := range strings.SplitSeq(path, "/") {
			// A path parameter does not hide a dot segment (`..;x`).
			if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
				return false
			}
		}
		decoded, err := url.PathUnescape(path)
		if err != nil {
			// A lone percent sign is the apiserver's to refuse, but only as long
			// as nothing was decoded of it.
			return strings.IndexByte(path, '%') >= 0 && !strings.Contains(strings.ToLower(path), "%2e")
		}
		if decoded == path {
			return true
		}
		path = decoded
	}
	return true
}
