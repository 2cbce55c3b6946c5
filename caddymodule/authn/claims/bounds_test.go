package claims

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// payloadOf is a claims object with the list l of n zeros, the string s of
// size bytes, and what changes says.
func payloadOf(n, size int, changes map[string]any) string {
	c := map[string]any{"sub": "alice", "l": make([]int, n), "s": strings.Repeat("s", size)}
	for name, value := range changes {
		c[name] = value
	}
	data, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("group-", i)
	}
	return list
}

// AUTH-10, ID-2: a token makes no identity that is many times its size. What
// is too large is marked as such, and nothing of it is kept.
func TestIdentityIsBounded(t *testing.T) {
	sub := apiserver.ClaimMappings{Username: claim("sub", ""), Groups: claim("groups", "")}
	by := func(groups string) apiserver.ClaimMappings {
		return apiserver.ClaimMappings{Username: claim("sub", ""), Groups: expression(groups)}
	}
	extras := func(n int, e string) apiserver.ClaimMappings {
		m := apiserver.ClaimMappings{Username: claim("sub", "")}
		for i := range n {
			m.Extra = append(m.Extra, apiserver.ExtraMapping{Key: fmt.Sprint("example.test/", i), ValueExpression: e})
		}
		return m
	}
	for _, tt := range []struct {
		name     string
		mappings apiserver.ClaimMappings
		payload  string
		tooLarge bool
		err      error
	}{
		{name: "groups that fit", mappings: sub, payload: payloadOf(0, 0, map[string]any{"groups": names(1000)})},
		{name: "too many groups", mappings: sub, payload: payloadOf(0, 0, map[string]any{"groups": names(1100)}), tooLarge: true},
		{name: "too many groups of an expression", mappings: by("claims.groups"), payload: payloadOf(0, 0, map[string]any{"groups": names(1100)}), tooLarge: true},
		{name: "one string over and over", mappings: by("dyn(claims.l).map(x, claims.s)"), payload: payloadOf(200, 12<<10, nil), tooLarge: true},
		{name: "a conversion over and over", mappings: by("dyn(claims.l).map(x, string(claims.s))"), payload: payloadOf(5000, 12<<10, nil), err: ErrTooLarge},
		{name: "extras with one string", mappings: extras(32, "dyn(claims.l).map(x, claims.s)"), payload: payloadOf(100, 12<<10, nil), tooLarge: true},
		{name: "extras with a conversion", mappings: extras(32, "dyn(claims.l).map(x, string(claims.s))"), payload: payloadOf(7000, 12<<10, nil), err: ErrTooLarge},
		{name: "a name", mappings: apiserver.ClaimMappings{Username: expression("claims.s + claims.s + claims.s + claims.s + claims.s + claims.s")}, payload: payloadOf(0, 12<<10, nil), tooLarge: true},
		{name: "replace", mappings: extras(1, "string(claims.s).replace('s', string(claims.s))"), payload: payloadOf(0, 12<<10, nil), err: ErrTooLarge},
		{name: "all expressions together", mappings: extras(32, "dyn(claims.l).all(a, a == 0.0 && a != 1.0) ? 'x' : 'y'"), payload: payloadOf(1000, 0, nil), err: ErrTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			compile(t, apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: "https://idp.example.test", Audiences: []string{"a"}}, ClaimMappings: tt.mappings})
			runtime.GC()
			runtime.ReadMemStats(&before)
			began := time.Now()
			id, err := mapped(t, apiserver.JWTAuthenticator{ClaimMappings: tt.mappings}, tt.payload)
			took := time.Since(began)
			runtime.GC()
			runtime.ReadMemStats(&after)
			t.Logf("%v, %d MiB allocated, %d KiB left", took, (after.TotalAlloc-before.TotalAlloc)>>20, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)
			if err != tt.err {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("%d MiB allocated", n>>20)
			}
			if err != nil {
				return
			}
			if id.TooLarge != tt.tooLarge {
				t.Errorf("TooLarge is %t", id.TooLarge)
			}
			if tt.tooLarge && (id.Name != "" || id.Groups != nil || id.Extra != nil) {
				t.Error("a part of an identity that was too large is kept")
			}
			for mode, r := range map[string]*identity.Violation{"Passthrough": identity.CheckPassthrough(id), "FrontProxy": forwardRefusal(id)} {
				if tt.tooLarge && (r == nil || r.Reason != identity.ReasonTooLarge) {
					t.Errorf("%s: %v, want too_large", mode, r)
				}
			}
			if r := identity.CheckPassthrough(id); !tt.tooLarge && r != nil {
				t.Errorf("Passthrough: %v", r)
			}
		})
	}
}

func forwardRefusal(id *identity.Identity) *identity.Violation {
	_, r := identity.Forward(id, identity.Settings{UserPrefix: "p:", GroupPrefix: "p:"})
	return r
}

// AUTH-10: rules of claims hold for what is too large, too.
func TestRulesBeforeSize(t *testing.T) {
	a := apiserver.JWTAuthenticator{
		ClaimMappings:        apiserver.ClaimMappings{Username: claim("sub", ""), Groups: claim("groups", "")},
		ClaimValidationRules: []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "example.test"}},
	}
	if _, err := mapped(t, a, payloadOf(0, 0, map[string]any{"groups": names(1100)})); err != ErrRule {
		t.Errorf("got %v", err)
	}
}

// AUTH-11: an address counts only when it is verified, however it was read.
func TestEmailHoweverRead(t *testing.T) {
	for _, e := range []string{
		"claims['email']", "claims[?'email'].orValue('')", "claims[?'email'].orValue(claims.sub)", "dyn(claims).email",
		"[claims].map(c, c.email)[0]", "claims.map(k, claims[k])[0]", "{'c': claims}.c.email", "claims.transformList(k, v, v)[0]",
		"claims.exists(v, v == 'a@example.test') ? 'a@example.test' : claims.sub", "'email' in claims ? claims['e' + 'mail'] : claims.sub",
		"claims.all(v, v != 'x') ? 'all' : 'none'", "dyn(claims)[?'email'].optMap(x, x).orValue('')",
	} {
		a := apiserver.JWTAuthenticator{ClaimMappings: apiserver.ClaimMappings{Username: expression(e)}}
		for _, flag := range []string{``, `,"email_verified":false`, `,"email_verified":"true"`, `,"email_verified":null`} {
			id, err := mapped(t, a, `{"email":"a@example.test","sub":"alice"`+flag+`}`)
			if err == nil {
				t.Errorf("%s with %s is %q", e, flag, id.Name)
			}
		}
	}
	for _, tt := range []struct {
		expression, payload, name string
		err                       error
	}{
		{"claims['email']", `{"email":"a@example.test","email_verified":true}`, "a@example.test", nil},
		{"claims[?'email'].orValue(claims.sub)", `{"sub":"alice"}`, "alice", nil},
		{"claims.sub", `{"sub":"alice","email":"a@example.test"}`, "alice", nil},
		{"claims == claims ? claims.sub : ''", `{"sub":"alice","email":"a@example.test"}`, "alice", nil},
		{"claims['email']", `{"email":"a@example.test"}`, "", ErrEmailNotVerified},
		// The author's own judgement, as kube-apiserver allows it.
		{`claims.?email_verified.orValue(true) ? claims.email : ""`, `{"email":"a@example.test"}`, "a@example.test", nil},
	} {
		id, err := mapped(t, apiserver.JWTAuthenticator{ClaimMappings: apiserver.ClaimMappings{Username: expression(tt.expression)}}, tt.payload)
		if err != tt.err || err == nil && id.Name != tt.name {
			t.Errorf("%s of %s: %v, %v; want %v", tt.expression, tt.payload, id, err, tt.err)
		}
	}
	// A rule or an extra attribute that looks at the flag counts as well.
	mappings := apiserver.ClaimMappings{Username: expression("claims['email']")}
	rule := []apiserver.ClaimValidationRule{{Expression: "claims.?email_verified.orValue(true) == true", Message: "m"}}
	if _, err := mapped(t, apiserver.JWTAuthenticator{ClaimMappings: mappings, ClaimValidationRules: rule}, `{"email":"a@example.test"}`); err != nil {
		t.Errorf("with a rule of its own: %v", err)
	}
}
