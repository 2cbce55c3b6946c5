package faults

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// AUTH-5, AUTH-6, AUTH-7: answers of providers as they are met in the field. Numbers
// are texts, access tokens have no sub, and members of a key are odd: all of it is
// served. A text that should be a boolean is not: it would decide who may enter.
func TestOddAnswersOfProviders(t *testing.T) {
	later := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	over := strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)
	key := func(change func(key map[string]any)) oidc.Fault {
		return oidc.Fault{Edit: func(set map[string]any) {
			keys := set["keys"].([]any)
			for _, k := range keys {
				change(k.(map[string]any))
			}
			set["keys"] = append([]any{nil, "key", map[string]any{"kty": "EC", "crv": "P-256", "x": 1}}, keys...)
		}}
	}
	member := func(name string, value any) oidc.Fault {
		return key(func(key map[string]any) { key[name] = value })
	}
	for name, tt := range map[string]struct {
		way      string
		endpoint oidc.Endpoint
		fault    oidc.Fault
		claims   map[string]any
		code     int // 0 for one that is served
	}{
		"x5c-empty":   {way: "jwt-keys", endpoint: oidc.Keys, fault: member("x5c", []string{""})},
		"x5c-text":    {way: "jwt-keys", endpoint: oidc.Keys, fault: member("x5c", "no list")},
		"x5t-number":  {way: "oidc-keys", endpoint: oidc.Keys, fault: member("x5t", 7)},
		"x5u-no-url":  {way: "oidc-keys", endpoint: oidc.Keys, fault: member("x5u", "%zz")},
		"use-empty":   {way: "jwt-keys", endpoint: oidc.Keys, fault: member("use", "")},
		"key-ops":     {way: "jwt-keys", endpoint: oidc.Keys, fault: member("key_ops", "verify")},
		"use-enc":     {way: "jwt-keys", endpoint: oidc.Keys, fault: member("use", "enc"), code: http.StatusServiceUnavailable},
		"padding":     {way: "jwt-keys", endpoint: oidc.Keys, fault: key(func(key map[string]any) { pad(key, "n", "e", "x", "y") })},
		"exp-text":    {way: "oidc-introspection", endpoint: oidc.Introspection, fault: oidc.With(map[string]any{"exp": later, "nbf": "0"})},
		"exp-over":    {way: "oidc-introspection", endpoint: oidc.Introspection, fault: oidc.With(map[string]any{"exp": over}), code: http.StatusUnauthorized},
		"active-text": {way: "oidc-introspection", endpoint: oidc.Introspection, fault: oidc.With(map[string]any{"active": "true"}), code: http.StatusServiceUnavailable},
		"no-sub":      {way: "oidc-userinfo", claims: map[string]any{"sub": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openSite(t, wayTo(tt.way))
			token := s.token(s)
			if tt.claims != nil {
				// The provider of these tests finds the user by sub.
				user, err := json.Marshal(s.idp.Claims(oidc.Alice, nil))
				if err != nil {
					t.Fatal(err)
				}
				tt.endpoint, tt.fault = oidc.Userinfo, oidc.JSON(http.StatusOK, string(user))
				token = s.idp.Token(oidc.Alice, tt.claims)
			}
			s.idp.SetFault(tt.endpoint, tt.fault)
			w := newWorld(t, proxy.Options{}, map[string]*site{"a": s})
			a, err := w.ask(t.Context(), "a", token)
			if err != nil {
				t.Fatal(err)
			}
			if tt.code == 0 {
				err = a.good(s.user)
			}
			if err != nil || tt.code != 0 && a.Code != tt.code {
				t.Errorf("code %d, %v: %s", a.Code, err, a.text())
			}
		})
	}
}

// pad writes numbers of a key with padding.
func pad(key map[string]any, names ...string) {
	for _, name := range names {
		if text, ok := key[name].(string); ok {
			key[name] = text + strings.Repeat("=", -len(text)&3)
		}
	}
}
