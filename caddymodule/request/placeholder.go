package request

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The names of the placeholders that Placeholder knows.
const (
	PlaceholderUser         = "http.auth.user.id"
	PlaceholderGroups       = "http.auth.user.groups"
	placeholderCluster      = "http.proxyauth.cluster"
	placeholderMode         = "http.proxyauth.mode"
	placeholderUpstreamUser = "http.proxyauth.upstream_user"
	placeholderReason       = "http.proxyauth.reason"
)

// Placeholder returns what later handlers and logs may know of a request, and
// whether it knows the name. It makes the text when it is asked, so a request
// whose placeholders are not used pays nothing.
//
// Users and providers choose the names of users and groups. What could begin
// another line, steer a terminal or pass for two groups is percent-encoded, and so
// is the percent sign: two names never give one text.
func (q *Request) Placeholder(name string) (any, bool) {
	d := q.decision
	switch name {
	case PlaceholderUser:
		if d.Identity == nil {
			return nil, false
		}
		return encodeName(d.Identity.Name, ""), true
	case PlaceholderGroups:
		if d.Identity == nil {
			return nil, false
		}
		return joinNames(d.Identity.Groups), true
	case placeholderCluster:
		if d.Cluster == nil {
			return "", true
		}
		return d.Key.String(), true
	case placeholderMode:
		if d.Cluster == nil {
			return "", true
		}
		return encodeName(modeText(d.Cluster.Spec.Mode), ""), true
	case placeholderUpstreamUser:
		if d.Forwarded == nil {
			return "", true
		}
		return encodeName(d.Forwarded.User, ""), true
	case placeholderReason:
		if q.refusal == nil {
			return "", true
		}
		return q.refusal.Audit, true
	}
	return nil, false
}

// joinNames separates names by commas.
func joinNames(names []string) string {
	var out strings.Builder
	for i, name := range names {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(encodeName(name, ","))
	}
	return out.String()
}

// encodeName percent-encodes what is not printable, the percent sign, what begins a
// placeholder or ends a quoted text, and the characters of also.
func encodeName(name, also string) string {
	special := func(r rune) bool {
		return strings.ContainsRune(`%{}"`, r) || r == utf8.RuneError || !unicode.IsPrint(r) || strings.ContainsRune(also, r)
	}
	if !strings.ContainsFunc(name, special) {
		return name
	}
	var out strings.Builder
	for len(name) > 0 {
		r, width := utf8.DecodeRuneInString(name)
		if special(r) {
			for _, b := range []byte(name[:width]) {
				fmt.Fprintf(&out, "%%%02X", b)
			}
		} else {
			out.WriteString(name[:width])
		}
		name = name[width:]
	}
	return out.String()
}
