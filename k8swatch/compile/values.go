package compile

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
)

// Errors of values that the proxy sends to an identity provider. None repeats a
// value, which may be a secret.
var (
	errEmpty       = errors.New("must not be empty")
	errEmptyCA     = errors.New("is empty; leave it out for the system roots")
	errNotUnicode  = errors.New("must be Unicode text (UTF-8)")
	errControl     = errors.New("has a control character")
	errScopeSyntax = errors.New(`must be a scope: printable ASCII without space, " and \`)
)

// checkValue takes what may stand in a form or a header: at most limit
// characters, none of them a control character.
func checkValue(s string, limit int) error {
	switch {
	case !utf8.ValidString(s):
		return errNotUnicode
	case utf8.RuneCountInString(s) > limit:
		return fmt.Errorf("must have at most %d characters", limit)
	case strings.ContainsFunc(s, unicode.IsControl):
		return errControl
	}
	return nil
}

// checkName is checkValue for what must be there.
func checkName(s string, limit int) error {
	if strings.TrimSpace(s) == "" {
		return errEmpty
	}
	return checkValue(s, limit)
}

// checkScope takes one scope-token of RFC 6749 section 3.3.
func checkScope(s string) error {
	if s == "" {
		return errEmpty
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return errScopeSyntax
		}
	}
	return nil
}

// checkScopes takes scopes separated by spaces, or none.
func checkScopes(s string) error {
	for _, scope := range strings.Split(s, " ") {
		if scope == "" {
			continue
		}
		if err := checkScope(scope); err != nil {
			return err
		}
	}
	return nil
}

// checkCA takes PEM certificates, at least one (API-6).
func checkCA(s string, limit int) error {
	switch {
	case strings.TrimSpace(s) == "":
		return errEmptyCA
	case !utf8.ValidString(s):
		return errNotUnicode
	case utf8.RuneCountInString(s) > limit:
		return fmt.Errorf("must have at most %d characters", limit)
	}
	_, err := keypair.ParseCertificates([]byte(s))
	return err
}
