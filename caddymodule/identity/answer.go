package identity

import (
	"net/http"
	"slices"
	"strings"
)

// originHeaders act on the whole origin of an answer, not on the answer alone:
// on every cluster of the path form, and on what else the proxy serves there.
// The names are folded (see fold).
var originHeaders = [...]string{
	"accept-ch", "activate-storage-access", "alt-svc", "clear-site-data", "critical-ch", "expect-ct",
	"idp-signin-status", "nel", "origin-agent-cluster", "public-key-pins", "public-key-pins-report-only",
	"report-to", "reporting-endpoints", "sec-session-registration", "secure-session-registration",
	"service-worker-allowed", "set-cookie2", "set-login", "strict-transport-security", "use-as-dictionary",
}

// frontHeaders are orders to a server in front of the proxy, such as nginx, which
// may end TLS there: to answer with another of its resources, another cluster's
// among them, as the caller.
var frontHeaders = [...]string{
	"x-accel-expires", "x-accel-redirect", "x-lighttpd-send-file", "x-lighttpd-send-tempfile", "x-reproxy-url", "x-sendfile",
}

// nosniff is shared by all answers.
var nosniff = []string{"nosniff"}

// Sandbox gives an answer an origin of its own (Content Security Policy Level 3,
// section 6.3.2): a page that an apiserver, or a pod behind it, shows cannot act
// as another cluster's, or as the portal's. Policies that are there stay, since
// browsers apply all of them.
func Sandbox(h http.Header) {
	h["Content-Security-Policy"] = append(h["Content-Security-Policy"], "sandbox")
	h["X-Content-Type-Options"] = nosniff
}

// ScrubAnswer removes from the headers or trailers of an apiserver's answer what
// acts on the whole origin or on a server in front, and Set-Cookie unless cookies are kept (proxy_cookies
// on, in the host form); a kept cookie loses its Domain attribute (ID-5).
func ScrubAnswer(h http.Header, keepCookies bool) {
	for key := range h {
		switch {
		case IsSpelling(key, "set-cookie"):
			if !keepCookies {
				delete(h, key)
				continue
			}
			withoutDomain(h[key])
		case isOneOf(key, originHeaders[:]), isOneOf(key, frontHeaders[:]):
			delete(h, key)
		}
	}
}

func isOneOf(key string, names []string) bool {
	for _, name := range names {
		if IsSpelling(key, name) {
			return true
		}
	}
	return false
}

// withoutDomain removes the Domain attribute from cookies (RFC 6265 section
// 5.2.3): with it a cluster sets cookies for the hosts of the others.
func withoutDomain(cookies []string) {
	for i, cookie := range cookies {
		parts := strings.Split(cookie, ";")
		kept := parts[:1]
		for _, attribute := range parts[1:] {
			name, _, _ := strings.Cut(attribute, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "domain") {
				kept = append(kept, attribute)
			}
		}
		cookies[i] = strings.Join(kept, ";")
	}
}

// wholeBearer is the length in bytes from which a bearer is looked for inside of
// values. A shorter one, such as `json`, may stand in a header by chance.
const wholeBearer = 16

// RemoveBearer removes the bearer that was presented from every header of a
// request, whatever its name: gateways that authenticate copy it to
// X-Forwarded-Access-Token and others, which an apiserver must not see and an
// access log must not hold (ID-5). A bearer shorter than 16 bytes must be the
// whole value, or all of it after a scheme. Of a list only the elements go that
// hold the bearer, so that a client cannot remove what a gateway has added.
func RemoveBearer(h http.Header, bearer string) {
	if bearer == "" {
		return
	}
	for key, values := range h {
		if !slices.ContainsFunc(values, func(value string) bool { return holdsBearer(value, bearer) }) {
			continue
		}
		kept := make([]string, 0, len(values))
		for _, value := range values {
			if value = withoutBearer(value, bearer); value != "" {
				kept = append(kept, value)
			}
		}
		if len(kept) == 0 {
			delete(h, key)
		} else {
			h[key] = kept
		}
	}
}

// withoutBearer is a list without the elements that hold the bearer, or empty.
func withoutBearer(value, bearer string) string {
	if !holdsBearer(value, bearer) {
		return value
	}
	elements := slices.DeleteFunc(strings.Split(value, ","), func(element string) bool { return holdsBearer(element, bearer) })
	if rest := strings.TrimSpace(strings.Join(elements, ",")); !holdsBearer(rest, bearer) {
		return rest
	}
	return ""
}

func holdsBearer(value, bearer string) bool {
	if len(value) < len(bearer) {
		return false
	}
	if len(bearer) >= wholeBearer {
		return strings.Contains(value, bearer)
	}
	if value = strings.TrimSpace(value); value == bearer {
		return true
	}
	_, credential, ok := strings.Cut(value, " ")
	return ok && strings.TrimSpace(credential) == bearer
}
