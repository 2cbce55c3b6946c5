package authn

import (
	"context"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/go-jose/go-jose/v4"
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
		reason   string
	}{
		{name: "groups that fit", mappings: sub, payload: payloadOf(0, 0, map[string]any{"groups": names(1000)})},
		{name: "too many groups", mappings: sub, payload: payloadOf(0, 0, map[string]any{"groups": names(1100)}), tooLarge: true},
		{name: "too many groups of an expression", mappings: by("claims.groups"), payload: payloadOf(0, 0, map[string]any{"groups": names(1100)}), tooLarge: true},
		{name: "one string over and over", mappings: by("dyn(claims.l).map(x, claims.s)"), payload: payloadOf(200, 12<<10, nil), tooLarge: true},
		{name: "a conversion over and over", mappings: by("dyn(claims.l).map(x, string(claims.s))"), payload: payloadOf(5000, 12<<10, nil), reason: ReasonTooLarge},
		{name: "extras with one string", mappings: extras(32, "dyn(claims.l).map(x, claims.s)"), payload: payloadOf(100, 12<<10, nil), tooLarge: true},
		{name: "extras with a conversion", mappings: extras(32, "dyn(claims.l).map(x, string(claims.s))"), payload: payloadOf(7000, 12<<10, nil), reason: ReasonTooLarge},
		{name: "a name", mappings: apiserver.ClaimMappings{Username: expression("claims.s + claims.s + claims.s + claims.s + claims.s + claims.s")}, payload: payloadOf(0, 12<<10, nil), tooLarge: true},
		{name: "replace", mappings: extras(1, "string(claims.s).replace('s', string(claims.s))"), payload: payloadOf(0, 12<<10, nil), reason: ReasonClaims},
		{name: "all expressions together", mappings: extras(32, "dyn(claims.l).all(a, a == 0.0 && a != 1.0) ? 'x' : 'y'"), payload: payloadOf(1000, 0, nil), reason: ReasonTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			compile(t, apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: "https://idp.example.test", Audiences: []string{"a"}}, ClaimMappings: tt.mappings})
			runtime.GC()
			runtime.ReadMemStats(&before)
			began := time.Now()
			id, refused := mapped(t, apiserver.JWTAuthenticator{ClaimMappings: tt.mappings}, tt.payload)
			took := time.Since(began)
			runtime.GC()
			runtime.ReadMemStats(&after)
			t.Logf("%v, %d MiB allocated, %d KiB left", took, (after.TotalAlloc-before.TotalAlloc)>>20, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)
			reason := ""
			if refused != nil {
				reason = refused.Reason
			}
			if reason != tt.reason {
				t.Fatalf("reason %q, want %q", reason, tt.reason)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("%d MiB allocated", n>>20)
			}
			if refused != nil {
				return
			}
			if id.TooLarge != tt.tooLarge {
				t.Errorf("TooLarge is %t", id.TooLarge)
			}
			if tt.tooLarge && (id.Name != "" || id.Groups != nil || id.Extra != nil) {
				t.Error("a part of an identity that was too large is kept")
			}
			for mode, r := range map[string]*identity.Refusal{"Passthrough": identity.CheckPassthrough(id), "FrontProxy": forwardRefusal(id)} {
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

func forwardRefusal(id *identity.Identity) *identity.Refusal {
	_, r := identity.Forward(id, identity.Settings{UserPrefix: "p:", GroupPrefix: "p:"})
	return r
}

// AUTH-10: rules of claims hold for what is too large, too.
func TestRulesBeforeSize(t *testing.T) {
	a := apiserver.JWTAuthenticator{
		ClaimMappings:        apiserver.ClaimMappings{Username: claim("sub", ""), Groups: claim("groups", "")},
		ClaimValidationRules: []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "example.test"}},
	}
	if _, refused := mapped(t, a, payloadOf(0, 0, map[string]any{"groups": names(1100)})); refused != errRule {
		t.Errorf("got %v", refused)
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
			id, refused := mapped(t, a, `{"email":"a@example.test","sub":"alice"`+flag+`}`)
			if refused == nil {
				t.Errorf("%s with %s is %q", e, flag, id.Name)
			}
		}
	}
	for _, tt := range []struct{ expression, payload, name, reason string }{
		{"claims['email']", `{"email":"a@example.test","email_verified":true}`, "a@example.test", ""},
		{"claims[?'email'].orValue(claims.sub)", `{"sub":"alice"}`, "alice", ""},
		{"claims.sub", `{"sub":"alice","email":"a@example.test"}`, "alice", ""},
		{"claims == claims ? claims.sub : ''", `{"sub":"alice","email":"a@example.test"}`, "alice", ""},
		{"claims['email']", `{"email":"a@example.test"}`, "", ReasonEmailNotVerified},
		// The author's own judgement, as kube-apiserver allows it.
		{`claims.?email_verified.orValue(true) ? claims.email : ""`, `{"email":"a@example.test"}`, "a@example.test", ""},
	} {
		id, refused := mapped(t, apiserver.JWTAuthenticator{ClaimMappings: apiserver.ClaimMappings{Username: expression(tt.expression)}}, tt.payload)
		switch {
		case tt.reason != "":
			if refused == nil || refused.Reason != tt.reason {
				t.Errorf("%s of %s: %v, want %s", tt.expression, tt.payload, refused, tt.reason)
			}
		case refused != nil || id.Name != tt.name:
			t.Errorf("%s of %s: %v, %v", tt.expression, tt.payload, id, refused)
		}
	}
	// A rule or an extra attribute that looks at the flag counts as well.
	mappings := apiserver.ClaimMappings{Username: expression("claims['email']")}
	rule := []apiserver.ClaimValidationRule{{Expression: "claims.?email_verified.orValue(true) == true", Message: "m"}}
	if _, refused := mapped(t, apiserver.JWTAuthenticator{ClaimMappings: mappings, ClaimValidationRules: rule}, `{"email":"a@example.test"}`); refused != nil {
		t.Errorf("with a rule of its own: %v", refused)
	}
}

// A payload over 32 KiB is not evaluated; without expressions it counts.
func TestLargePayload(t *testing.T) {
	p := newIDP(t, k1().jwk())
	plain, byExpression := p.authenticator(), p.authenticator()
	byExpression.ClaimMappings.Groups = expression("claims.groups")
	for reason, a := range map[string]apiserver.JWTAuthenticator{"": plain, ReasonTooLarge: byExpression} {
		w := newWorld(t, a)
		_, err := w.Authenticate(t.Context(), w.token(t, k1(), p, "s", strings.Repeat("s", 33<<10)))
		if reasonOf(err) != reason {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
}

// setMonotonic gives a time another reading of the process's clock, as if the
// time of day had been set or the machine had slept.
func setMonotonic(t, of time.Time) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(&t)).ext = (*layout)(unsafe.Pointer(&of)).ext
	return t
}

// AUTH-12: never past exp, also when the clock of the process stood still.
func TestExpiryIsATimeOfDay(t *testing.T) {
	begun := time.Now()
	now := begun
	c := NewCache(0, func() time.Time { return now })
	exp := time.Unix(begun.Unix()+60, 0)
	if validated, _, _ := ask(t, c, "t", good("alice", exp)); !validated {
		t.Fatal("not validated")
	}
	now = setMonotonic(begun.Add(30*time.Second), begun)
	if validated, _, _ := ask(t, c, "t", good("alice", exp)); validated {
		t.Error("forgotten before its time")
	}
	now = setMonotonic(begun.Add(2*time.Minute), begun)
	if now.Sub(begun) != 0 {
		t.Fatal("the clocks were not pulled apart")
	}
	if validated, _, _ := ask(t, c, "t", bad(errExpired)); !validated {
		t.Error("served past exp")
	}
	if got := age(now, begun); got < 2*time.Minute {
		t.Errorf("keys are %v old, want two minutes", got)
	}
}

// AUTH-5: no key set makes a token cost more than eight verifications.
func TestTriesAreBounded(t *testing.T) {
	signers := make([]signer, 20)
	keys := make([]map[string]any, 20)
	for i := range signers {
		signers[i] = signer{fmt.Sprint("k", i), jose.ES512, newEC(elliptic.P521())}
		keys[i] = signers[i].jwk()
	}
	p := newIDP(t, keys...)
	w := newWorld(t, p.authenticator())
	unnamed := func(i int) string {
		return signer{"", jose.ES512, signers[i].key}.sign(t, nil, mustJSON(w.claimsOf(p)))
	}
	w.check(t, w.token(t, signers[19], p), "alice", "")
	w.check(t, unnamed(maxTries-1), "alice", "")
	began := time.Now()
	w.check(t, unnamed(19), "", ReasonUnknownKey)
	t.Logf("a token that fits none took %v", time.Since(began))
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func TestRSAKeysAreBounded(t *testing.T) {
	for _, tt := range []struct {
		bits uint
		e    int
		ok   bool
	}{
		{2047, 65537, false}, {2048, 65537, true}, {4096, 65537, true}, {4097, 65537, false}, {8192, 65537, false},
		{2048, 3, true}, {2048, 1, false}, {2048, 65536, false}, {2048, 1<<31 - 1, false}, {2048, -3, false},
	} {
		n := new(big.Int).SetBit(big.NewInt(1), int(tt.bits-1), 1)
		if got := verificationKey(&rsa.PublicKey{N: n, E: tt.e}) != nil; got != tt.ok {
			t.Errorf("%d bits, exponent %d: %t", tt.bits, tt.e, got)
		}
	}
}

// AUTH-13: what waits for an issuer is bounded, and the others go on.
func TestWaitingIsBounded(t *testing.T) {
	s := newKeyShare(&keySet{issuer: "https://idp.example.test"})
	var leave []func()
	for {
		l, err := s.admit(2 << 10)
		if err != nil {
			var u *Unavailable
			if !errors.As(err, &u) || !strings.Contains(u.Fault, "too many tokens wait") {
				t.Fatal(err)
			}
			break
		}
		leave = append(leave, l)
	}
	t.Logf("%d tokens of 2 KiB", len(leave))
	if len(leave) < 250 {
		t.Errorf("only %d tokens of 2 KiB may wait", len(leave))
	}
	for _, l := range leave {
		l()
	}
	if n, own := s.waiting.Load(), s.use.waiting.Load(); n != 0 || own != 0 {
		t.Errorf("%d bytes still wait, %d of the authenticator's", n, own)
	}
	if _, err := s.admit(maxToken); err != nil {
		t.Error(err)
	}
}

func TestLanesHonourTheContext(t *testing.T) {
	l := make(lanes, 1)
	if err := l.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if l.enter(ctx) == nil {
		t.Error("entered a lane that is taken")
	}
	l.leave()
	if err := l.enter(t.Context()); err != nil {
		t.Error(err)
	}
}

// A token whose turn does not come is not judged: that is no 401.
func TestNoTurnIsNoVerdict(t *testing.T) {
	p := newIDP(t, k1().jwk())
	a := p.authenticator()
	a.ClaimMappings.Groups = expression("claims.groups")
	w := newWorld(t, a)
	for range cap(w.evaluations) {
		w.evaluations <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.members[0].identity(ctx, claims{}, 0); err != error(errBusy) {
		t.Errorf("got %v", err)
	}
}
