package exchange

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/oauth"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// maxLife bounds expires_in: what is longer is as good as for ever, and
	// must not overflow a duration.
	maxLife   = 365 * 24 * time.Hour
	otherCode = "other"
)

// The faults of an answer with status 200. The last ones name what is wrong
// between the provider and the configuration.
const (
	faultNotJSON   = idp.Fault("its answer to the token exchange cannot be read")
	faultMember    = idp.Fault("its answer to the token exchange has a member of the wrong type")
	faultTokenType = idp.Fault("it gave a token that is not used as a bearer")
	faultBytes     = idp.Fault("it gave a token with bytes or a size that no bearer has")
	faultExpired   = idp.Fault("it gave a token that has expired")
	faultNoToken   = idp.Fault("its answer to the token exchange holds no usable token")
)

// members reads the JSON object of an answer.
func members(body []byte) (map[string]json.RawMessage, error) {
	found, err := boundedjson.Object(body)
	switch {
	case errors.Is(err, boundedjson.ErrTooManyMembers):
		return nil, idp.TooManyMembers
	case err != nil:
		return nil, faultNotJSON
	}
	return found, nil
}

// text reads a string member. One that is absent or null is empty: servers
// write null for what they have nothing of.
func text(found map[string]json.RawMessage, name string) (string, bool) {
	raw, ok := found[name]
	if !ok || string(raw) == "null" {
		return "", true
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// life reads expires_in: a number of seconds, absent for not known.
func life(found map[string]json.RawMessage) (time.Duration, error) {
	raw, ok := found["expires_in"]
	if !ok || string(raw) == "null" {
		return 0, nil
	}
	seconds, ok := boundedjson.Number(raw)
	switch {
	case !ok:
		return 0, faultMember
	case seconds < 1:
		return 0, faultExpired
	case seconds >= maxLife.Seconds():
		return maxLife, nil
	}
	return time.Duration(seconds) * time.Second, nil
}

// read reads the answer to a request that succeeded (RFC 8693 section 2.2.1).
func read(body []byte, config *k8swatch.TokenExchange) (*Token, error) {
	found, err := members(body)
	if err != nil {
		return nil, err
	}
	access, ok1 := text(found, "access_token")
	id, ok2 := text(found, "id_token")
	issued, ok3 := text(found, "issued_token_type")
	kind, ok4 := text(found, "token_type")
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return nil, faultMember
	}
	validFor, err := life(found)
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(kind, "Bearer") && !strings.EqualFold(kind, "N_A") {
		return nil, faultTokenType
	}
	token := choose(config.Forward, access, id, issued, config.RequestedTokenType)
	if token == "" {
		return nil, faultNoToken
	}
	if !idp.IsBearer(token) {
		return nil, faultBytes
	}
	return &Token{Value: token, Life: validFor}, nil
}

// The kinds of token that matter here, as plain writes them.
const (
	kindNone   = ""
	kindAccess = "accesstoken"
	kindID     = "idtoken"
	kindJWT    = "jwt"
)

// neverUsed are the kinds that are no bearer for an apiserver.
var neverUsed = []string{"refreshtoken", "saml1", "saml2"}

// plain writes the name of a token type in one way: the URN of RFC 8693
// section 3 and the bare name are one, and so are AccessToken and
// access_token.
func plain(name string) string {
	if len(name) >= len(typePrefix) && strings.EqualFold(name[:len(typePrefix)], typePrefix) {
		name = name[len(typePrefix):]
	}
	return strings.ReplaceAll(strings.ToLower(name), "_", "")
}

// choose returns the token that is to be used, empty for none, by the table in
// the package comment.
func choose(forward, access, id, issued, requested string) string {
	kind := plain(issued)
	if forward != v1.ForwardAccessToken {
		switch {
		case id != "":
			return id
		case kind == kindID:
			return access
		}
		return ""
	}
	switch kind {
	case kindNone, kindAccess, kindJWT:
		return access
	case kindID:
		if id != "" && id != access {
			return access
		}
		return ""
	}
	if kind == plain(requested) && !slices.Contains(neverUsed, kind) {
		return access
	}
	return ""
}

// codes are the errors a token endpoint answers this grant with: RFC 6749
// section 5.2, RFC 8693 section 2.2.2, RFC 8707 section 2, and those of other
// endpoints that are used for it.
var codes = []string{
	"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
	"invalid_target", "invalid_token", "access_denied", "unsupported_token_type", "invalid_resource",
}

// notJudged are errors that say nothing about the token (RFC 6749 section
// 4.1.2.1, RFC 8628 section 3.5).
var notJudged = []string{"server_error", "temporarily_unavailable", "slow_down"}

// oauthError reads an answer with a 4xx status: a *Refused when it holds an OAuth
// error, else a fault. An answer that says to come back later judged nothing,
// whatever it holds: that is no 401 (AUTH-13).
func oauthError(r *idp.Response) error {
	switch r.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return r.Unexpected()
	}
	code := oauth.ErrorCode(r.Status, r.Body)
	switch {
	case code == "" || slices.Contains(notJudged, code):
		return r.Unexpected()
	case slices.Contains(codes, code):
		return &Refused{Code: code}
	}
	return &Refused{Code: otherCode}
}
