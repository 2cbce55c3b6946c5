package identity

import (
	"net/http"
	"strings"
)

// Folded header names and prefixes: lower case, '-' for '_' and '.'.
const (
	remotePrefix      = "x-remote-"
	impersonatePrefix = "impersonate-"
	forwardedPrefix   = "x-forwarded-"
)

// ScrubOptions says what Scrub leaves.
type ScrubOptions struct {
	// KeepCookies leaves Cookie (proxy_cookies on, in the host form).
	KeepCookies bool
	// KeepImpersonation leaves Impersonate-* (impersonation forward), spelled
	// with a dash; other spellings still go, because the apiserver would not
	// check the right to use them.
	KeepImpersonation bool
}

// Scrub removes from h the headers that a client may not send to an apiserver
// (ID-5): everything under X-Remote- and Impersonate-, X-Forwarded-User,
// X-Forwarded-Groups, X-Real-Ip, Forwarded, Cookie, and the caller's own
// Authorization and Proxy-Authorization, which the transport writes again
// where the mode sends one.
//
// Names are compared over the raw keys, lower-cased, with '_' and '.' as '-':
// some servers and gateways behind an apiserver fold them, http.Header does
// not. X-Forwarded-* spelled with '_' or '.' is removed for the same reason.
//
// Trailers are not safe after Scrub: a server adds unannounced names while the
// body is read. Relay a request without them, by setting Request.Trailer to nil.
func Scrub(h http.Header, o ScrubOptions) {
	for key := range h {
		if scrubbed(key, o) {
			delete(h, key)
		}
	}
}

func scrubbed(key string, o ScrubOptions) bool {
	if key == "" {
		return false
	}
	switch fold(key[0]) {
	case 'x':
		return foldedHasPrefix(key, remotePrefix) ||
			IsSpelling(key, "x-real-ip") ||
			foldedHasPrefix(key, forwardedPrefix) && (hasAlias(key) ||
				IsSpelling(key, "x-forwarded-user") || IsSpelling(key, "x-forwarded-groups"))
	case 'i':
		return foldedHasPrefix(key, impersonatePrefix) &&
			(!o.KeepImpersonation || !impersonation(key))
	case 'a':
		return IsSpelling(key, "authorization")
	case 'p':
		return IsSpelling(key, "proxy-authorization")
	case 'f':
		return IsSpelling(key, "forwarded")
	case 'c':
		return !o.KeepCookies && IsSpelling(key, "cookie")
	}
	return false
}

// HasImpersonation reports whether h asks to act as another user, in any spelling
// of Impersonate-* (ID-6).
func HasImpersonation(h http.Header) bool {
	for key := range h {
		if foldedHasPrefix(key, impersonatePrefix) {
			return true
		}
	}
	return false
}

// Impersonation returns the Impersonate-* headers of h that KeepImpersonation
// leaves. The caller writes all of them again after the hop-by-hop headers were
// removed, because a client could name some of them in Connection (ID-6).
func Impersonation(h http.Header) http.Header {
	set := http.Header{}
	for key, values := range h {
		if impersonation(key) {
			set[key] = values
		}
	}
	return set
}

// impersonation reports whether key is one of the headers an apiserver reads,
// spelled as it reads them (pkg/endpoints/filters/impersonation.go). Any other
// name under Impersonate- has no meaning to an apiserver.
func impersonation(key string) bool {
	const extra = "Impersonate-Extra-"
	return strings.EqualFold(key, "Impersonate-User") || strings.EqualFold(key, "Impersonate-Group") ||
		strings.EqualFold(key, "Impersonate-Uid") || len(key) > len(extra) && strings.EqualFold(key[:len(extra)], extra)
}

func fold(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + ('a' - 'A')
	case c == '_' || c == '.':
		return '-'
	}
	return c
}

func foldedHasPrefix(key, prefix string) bool {
	if len(key) < len(prefix) {
		return false
	}
	for i := 0; i < len(prefix); i++ {
		if fold(key[i]) != prefix[i] {
			return false
		}
	}
	return true
}

// IsSpelling reports whether a raw key of a header map names a header, in any case
// and with '_' or '.' for '-', which some servers read as the same header. The name
// is in lower case.
func IsSpelling(key, name string) bool {
	return len(key) == len(name) && foldedHasPrefix(key, name)
}

// hasAlias reports whether key is spelled with a character that folds to '-'.
func hasAlias(key string) bool {
	for i := 0; i < len(key); i++ {
		if key[i] == '_' || key[i] == '.' {
			return true
		}
	}
	return false
}
