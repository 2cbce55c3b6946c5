package access

import (
	"errors"
	"net/url"
	"strings"
)

var (
	errDotSegment = errors.New("path has a dot segment")
	errBadEscape  = errors.New("path has a malformed percent escape")
	errNoPath     = errors.New("path does not begin with a slash")
)

// IsDotSegment reports whether ParsePath refused a path because of a . or ..
// segment (400, URL-4).
func IsDotSegment(err error) bool { return errors.Is(err, errDotSegment) }

// Path is a path as kube-apiserver reads it.
type Path struct {
	// Decoded is the path, percent-decoded once.
	Decoded string
	// EmptySegment says that Decoded holds an empty segment other than the one
	// trailing slash that is ignored. The apiserver finds nothing at most of
	// these, but /api/v1/namespaces//pods lists the pods of all namespaces,
	// so rules about resources refuse such a path (URL-4).
	EmptySegment bool
}

// ParsePath reads raw, the escaped path as it goes to the apiserver, without
// /clusters/<ns>/<name>, path base and query. Its errors may be shown to the
// client and hold nothing of the path. It allocates nothing for a path without
// escapes.
func ParsePath(raw string) (Path, error) {
	if raw == "" || raw[0] != '/' {
		return Path{}, errNoPath
	}
	decoded := raw
	if strings.IndexByte(raw, '%') >= 0 {
		var err error
		// PathUnescape, in contrast to QueryUnescape, leaves '+' alone, as
		// net/url does when it parses a request's path.
		if decoded, err = url.PathUnescape(raw); err != nil {
			return Path{}, errBadEscape
		}
	}
	p := Path{Decoded: decoded}
	trimmed := strings.Trim(decoded, "/")
	// One slash in front and one behind are not an empty segment.
	p.EmptySegment = len(decoded)-len(trimmed) > 2 || len(decoded) > 1 && decoded[1] == '/' ||
		strings.Contains(trimmed, "//")
	for segment := range strings.SplitSeq(trimmed, "/") {
		if segment == "." || segment == ".." {
			return Path{}, errDotSegment
		}
	}
	return p, nil
}
