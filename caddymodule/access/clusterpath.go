package access

import "strings"

const clustersPrefix = "/clusters/"

// ClusterPath is what stands before the apiserver's paths in the path form.
func ClusterPath(ns, name string) string { return clustersPrefix + ns + "/" + name }

// SplitClusterPath splits a path of the form /clusters/<ns>/<name>/<rest>, as the
// client sent it, into its parts. Names are made of [a-z0-9.-]. rest is what goes
// upstream, byte for byte, and "/" when nothing follows the name. ok is false for
// every other spelling (/CLUSTERS/, //clusters, %63lusters, a%2Fb): such a path
// names no cluster (URL-1).
func SplitClusterPath(rawPath string) (ns, name, rest string, ok bool) {
	tail, found := strings.CutPrefix(rawPath, clustersPrefix)
	if !found {
		return "", "", "", false
	}
	n := nameLength(tail)
	if n == 0 || n == len(tail) || tail[n] != '/' {
		return "", "", "", false
	}
	ns, tail = tail[:n], tail[n+1:]
	n = nameLength(tail)
	if n == 0 || n < len(tail) && tail[n] != '/' {
		return "", "", "", false
	}
	name, rest = tail[:n], tail[n:]
	if rest == "" {
		rest = "/"
	}
	return ns, name, rest, true
}

// nameLength is the length of the name that s begins with.
func nameLength(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '.', c == '-':
		default:
			return i
		}
	}
	return len(s)
}
