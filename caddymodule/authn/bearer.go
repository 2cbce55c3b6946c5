package authn

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// maxToken bounds a token. It is the header limit the documentation asks for,
// so that it only matters where a listener allows more.
const maxToken = idp.MaxBearer

const (
	protocolHeader = "Sec-Websocket-Protocol"

	// protocolPrefix begins the subprotocol entry that carries a token, since
	// a browser cannot set Authorization on a WebSocket
	// (k8s.io/apiserver/pkg/authentication/request/websocket).
	protocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// Bearer takes the bearer token out of the headers of a request (AUTH-1,
// AUTH-2). Whatever it returns, afterwards h holds no Authorization and no
// subprotocol entry with a token; other subprotocols keep their lines and
// order. isWebSocket says whether the request asks for an upgrade to
// websocket: elsewhere a token in a subprotocol is refused.
//
// The error is an *Unauthenticated. Query parameters, cookies and client
// certificates are not looked at.
func Bearer(h http.Header, isWebSocket bool) (string, error) {
	authorization, lines := takeAuthorization(h)
	entry := takeProtocolEntry(h)

	switch {
	case lines > 1 || entry.tokens > 1:
		return "", errConflict
	case entry.tokens == 1 && (!isWebSocket || entry.malformed || entry.others == 0):
		return "", errMalformed
	case lines == 0 && entry.tokens == 0:
		return "", errNoCredential
	case lines == 0:
		return entry.token, nil
	}
	token, err := parseAuthorization(authorization)
	if err != nil {
		return "", err
	}
	if entry.tokens == 1 && entry.token != token {
		return "", errConflict
	}
	return token, nil
}

// takeAuthorization removes Authorization in every spelling of the raw map
// keys and returns its only value, or how many there were.
func takeAuthorization(h http.Header) (value string, lines int) {
	for key, values := range h {
		if !identity.IsSpelling(key, "authorization") {
			continue
		}
		lines += len(values)
		if len(values) > 0 {
			value = values[0]
		}
		delete(h, key)
	}
	return value, lines
}

// parseAuthorization reads `Bearer <token>`: any case of the scheme, exactly
// one space, one token. kube-apiserver ignores a header with two spaces, and
// whatever follows the token; here both are refused, so that a request is
// never understood in two ways.
func parseAuthorization(value string) (string, error) {
	value = strings.Trim(value, " \t")
	scheme, token, _ := strings.Cut(value, " ")
	switch {
	case value == "":
		return "", errNoCredential
	case !strings.EqualFold(scheme, "Bearer"):
		return "", errScheme
	case !idp.IsBearer(token):
		return "", errMalformed
	}
	return token, nil
}

// protocolEntry is what the Sec-WebSocket-Protocol lines of a request hold.
type protocolEntry struct {
	// tokens and others count the entries with and without a token.
	tokens, others int
	token          string
	malformed      bool
}

// takeProtocolEntry removes the entries that carry a token.
func takeProtocolEntry(h http.Header) (found protocolEntry) {
	for key, values := range h {
		if !identity.IsSpelling(key, "sec-websocket-protocol") {
			continue
		}
		before := found.tokens
		kept := make([]string, 0, len(values))
		for _, line := range values {
			if rest, ok := found.read(line); ok {
				kept = append(kept, rest)
			}
		}
		switch {
		case found.tokens == before:
		case key != protocolHeader:
			// Not a spelling kube-apiserver reads, but one that some hop may.
			found.malformed = true
			delete(h, key)
		case len(kept) == 0:
			delete(h, key)
		default:
			h[key] = kept
		}
	}
	return found
}

// read looks at one line and returns it without its token entries, unless
// nothing is left. A line without a token is returned as it came.
func (p *protocolEntry) read(line string) (rest string, ok bool) {
	before := p.tokens
	var kept []string
	for entry := range strings.SplitSeq(line, ",") {
		entry = strings.TrimSpace(entry)
		switch {
		case len(entry) >= len(protocolPrefix) && strings.EqualFold(entry[:len(protocolPrefix)], protocolPrefix):
			p.tokens++
			p.decode(entry)
		case entry != "":
			p.others++
			kept = append(kept, entry)
		}
	}
	if p.tokens == before {
		return line, true
	}
	return strings.Join(kept, ", "), len(kept) > 0
}

// decode reads one token entry as kube-apiserver does: unpadded base64url of
// valid UTF-8. The prefix is compared in its one spelling; another is seen as
// a token all the same, so that it is never passed on.
func (p *protocolEntry) decode(entry string) {
	encoded, ok := strings.CutPrefix(entry, protocolPrefix)
	if !ok || strings.ContainsAny(encoded, "\r\n") { // which the decoder skips
		p.malformed = true
		return
	}
	token, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || !utf8.Valid(token) || !idp.IsBearer(string(token)) {
		p.malformed = true
		return
	}
	p.token = string(token)
}
