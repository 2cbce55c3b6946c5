package oauth

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// maxCode is more than any registered error has.
const maxCode = 64

// ErrorCode reads the error that an answer with a 4xx status holds (RFC 6749
// section 5.2), empty for none. The provider chose it, from the letters that
// such errors are written with.
func ErrorCode(status int, body []byte) string {
	if status/100 != 4 {
		return ""
	}
	found, err := boundedjson.Object(body)
	if err != nil {
		return ""
	}
	var code string
	if json.Unmarshal(found["error"], &code) != nil || !isCode(code) {
		return ""
	}
	return code
}

// RefusesToken reports whether a 400 is about the token that was shown, as RFC
// 6750 section 3.1 writes it with a 401. Kanidm answers so at its userinfo
// endpoint for a token whose session has ended, and at the introspection endpoint
// for what it cannot read as a token.
func RefusesToken(status int, body []byte) bool {
	if status != http.StatusBadRequest {
		return false
	}
	switch ErrorCode(status, body) {
	case "invalid_token", "invalid_request":
		return true
	}
	return false
}

// isCode reports whether s is written as an OAuth error is. Web frameworks
// answer with {"error": "Not Found"} for a path they do not have.
func isCode(s string) bool {
	return s != "" && len(s) <= maxCode && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-.") == ""
}
