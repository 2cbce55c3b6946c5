package compile

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

var (
	errURLScheme      = errors.New("must be an https:// URL")
	errURLHost        = errors.New("needs a host: a name in ASCII (its xn-- form if need be), an IPv4 address, or an IPv6 address in brackets")
	errURLPort        = errors.New("has a port that is not 1 to 65535")
	errURLUser        = errors.New("must not contain a user or password")
	errURLQuery       = errors.New("must not contain a query")
	errURLFragment    = errors.New("must not contain a fragment")
	errURLEscape      = errors.New("has a path with a character that must be percent-encoded, or a bad percent-encoding")
	errURLQueryEscape = errors.New("has a query with a character that must be percent-encoded, or a bad percent-encoding")
	errNoURI          = errors.New("must be an absolute URI without a fragment")
	errURLDots        = errors.New("has a path with a dot segment")
	errURLEmpty       = errors.New("has a path with an empty segment")
)

// splitHTTPS splits an https URL without user, query and fragment into its
// authority and its path, both as they are written.
func splitHTTPS(raw string) (authority, path string, err error) {
	rest, ok := strings.CutPrefix(raw, "https://")
	if !ok {
		return "", "", errURLScheme
	}
	if strings.Contains(rest, "#") {
		return "", "", errURLFragment
	}
	if strings.Contains(rest, "?") {
		return "", "", errURLQuery
	}
	authority = rest
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	if strings.Contains(authority, "@") {
		return "", "", errURLUser
	}
	return authority, path, nil
}

// splitAuthority returns the host in lower case, without brackets, and the
// port, empty where none is written.
func splitAuthority(authority string) (host, port string, err error) {
	host = authority
	bracket := strings.IndexByte(authority, ']')
	if colon := strings.LastIndexByte(authority, ':'); colon > bracket {
		host = authority[:colon]
		n, err := strconv.ParseUint(authority[colon+1:], 10, 16)
		if err != nil || n == 0 || len(authority)-colon > 6 {
			return "", "", errURLPort
		}
		port = strconv.FormatUint(n, 10)
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		address, err := netip.ParseAddr(host[1 : len(host)-1])
		if err != nil || !address.Is6() || address.Zone() != "" {
			return "", "", errURLHost
		}
		return strings.ToLower(host[1 : len(host)-1]), port, nil
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return !isHostRune(r) }) {
		return "", "", errURLHost
	}
	return strings.ToLower(host), port, nil
}

func isHostRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_~", r)
}

// decodePath takes only what RFC 3986 section 3.3 allows in a path, so that
// nothing in it can end the request line, and nothing on the way re-encodes it.
func decodePath(path string) (string, error) {
	for i := 0; i < len(path); i++ {
		if !isPathByte(path[i]) {
			return "", errURLEscape
		}
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return "", errURLEscape
	}
	return decoded, nil
}

func isPathByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("/-._~%!$&'()*+,;=:@", c) >= 0
}

// checkIssuerURL takes the URL of an OpenID provider (OpenID Connect Discovery
// section 3: https, no query, no fragment). Its path is not looked into: it must
// be what the iss claim says.
func checkIssuerURL(raw string) error {
	authority, path, err := splitHTTPS(raw)
	if err != nil {
		return err
	}
	if _, _, err := splitAuthority(authority); err != nil {
		return err
	}
	_, err = decodePath(path)
	return err
}

// checkTokenURL takes the URL of a token endpoint, which may have a query (RFC
// 6749 section 3.2).
func checkTokenURL(raw string) error {
	base, query, _ := strings.Cut(raw, "?")
	if strings.Contains(query, "#") {
		return errURLFragment
	}
	if err := checkIssuerURL(base); err != nil {
		return err
	}
	if _, err := decodePath(strings.ReplaceAll(query, "?", "")); err != nil {
		return errURLQueryEscape
	}
	return nil
}

// checkURI takes the resource of a token exchange (RFC 8693 section 2.1).
func checkURI(raw string) error {
	if u, err := url.Parse(raw); err != nil || !u.IsAbs() || strings.Contains(raw, "#") {
		return errNoURI
	}
	return nil
}
