package exchange

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// AUTH-16, TEX-02: the table of the package comment, each name of a type in
// each of its spellings.
func TestWhichToken(t *testing.T) {
	spell := map[string][]string{
		"id_token": {typePrefix + "id_token", "id_token", "IdToken", "idtoken", "ID_TOKEN", strings.ToUpper(typePrefix) + "Id_Token", typePrefix + "IdToken"},
		"access_token": {typePrefix + "access_token", "access_token", "AccessToken", "accesstoken", "Access_Token",
			typePrefix + "AccessToken"},
		"jwt":     {typePrefix + "jwt", "jwt", "JWT"},
		"none":    {""},
		"refresh": {typePrefix + "refresh_token", "RefreshToken"},
		"saml":    {typePrefix + "saml2", "saml1"},
		"other":   {"urn:example:token-type:special", "urn:ietf:params:oauth:token-type:txn_token"},
	}
	const a, i = "access", "identity"
	for _, tt := range []struct {
		use        string
		issued     string
		access, id string
		requested  string
		want       string
	}{
		{idToken, "id_token", a, i, "", i},
		{idToken, "access_token", a, i, "", i}, // Kanidm
		{idToken, "jwt", a, i, "", i},
		{idToken, "none", a, i, "", i},
		{idToken, "refresh", a, i, "", i},
		{idToken, "other", a, i, "", i},
		{idToken, "access_token", "", i, "", i},
		{idToken, "id_token", a, "", "", a}, // RFC 8693
		{idToken, "id_token", "", "", "", ""},
		{idToken, "access_token", a, "", "", ""},
		{idToken, "jwt", a, "", "", ""},
		{idToken, "jwt", a, "", typePrefix + "jwt", ""},
		{idToken, "none", a, "", "", ""},
		{idToken, "refresh", a, "", "", ""},
		{idToken, "other", a, "", "", ""},

		{accessToken, "access_token", a, i, "", a},
		{accessToken, "access_token", a, "", "", a},
		{accessToken, "access_token", "", i, "", ""},
		{accessToken, "jwt", a, "", "", a},
		{accessToken, "none", a, "", "", a},
		{accessToken, "none", a, i, "", a},
		{accessToken, "id_token", a, i, "", a},
		{accessToken, "id_token", a, a, "", ""},
		{accessToken, "id_token", a, "", "", ""},
		{accessToken, "id_token", a, "", typePrefix + "id_token", ""},
		{accessToken, "refresh", a, i, "", ""},
		{accessToken, "refresh", a, "", typePrefix + "refresh_token", ""},
		{accessToken, "saml", a, "", typePrefix + "saml2", ""},
		{accessToken, "other", a, "", "", ""},
		{accessToken, "other", a, "", "asked", a},
	} {
		for _, issued := range spell[tt.issued] {
			requested := tt.requested
			if requested == "asked" {
				requested = issued
			}
			if got := choose(tt.use, tt.access, tt.id, issued, requested); got != tt.want {
				t.Errorf("forward %v, issued %q, access %q, id %q, requested %q: %q, want %q",
					tt.use, issued, tt.access, tt.id, requested, got, tt.want)
			}
		}
	}
}

// TEX-02: answers as servers write them, over the wire.
func TestAnswers(t *testing.T) {
	kanidm := object{"access_token": "acc", "token_type": "Bearer", "expires_in": 900, "scope": "openid groups_name", "id_token": "idt", "issued_token_type": "AccessToken"}
	plus := func(o object, name string, value any) object {
		changed := object{name: value}
		for n, v := range o {
			if _, ok := changed[n]; !ok {
				changed[n] = v
			}
		}
		return changed
	}
	type want struct {
		Value string
		Life  time.Duration
		Fault idp.Fault
	}
	issued := func(life time.Duration) want { return want{Value: "issued-token", Life: life} }
	fault := func(f idp.Fault) want { return want{Fault: f} }
	long := strings.Repeat("x", 64<<10)
	for _, tt := range []struct {
		name   string
		answer any
		use    string
		want   want
	}{
		{"the RFC", standard(), idToken, issued(300 * time.Second)},
		{"Kanidm, IdToken", kanidm, idToken, want{Value: "idt", Life: 900 * time.Second}},
		{"Kanidm, AccessToken", kanidm, accessToken, want{Value: "acc", Life: 900 * time.Second}},
		{"id_token null", standard("id_token", nil, "issued_token_type", "access_token", "refresh_token", nil), accessToken, issued(300 * time.Second)},
		{"id_token written as null", `{"access_token":"issued-token","token_type":"bearer","issued_token_type":"access_token","id_token":null,"expires_in":null}`, accessToken, issued(0)},
		{"members in other case are others", standard("Access_Token", "x", "ID_TOKEN", "y"), idToken, issued(300 * time.Second)},
		{"unknown members", standard("x", object{"access_token": []int{1}, "a": nil}), idToken, issued(300 * time.Second)},

		{"token_type bearer", standard("token_type", "bearer"), idToken, issued(300 * time.Second)},
		{"token_type n_a", standard("token_type", "n_a"), idToken, issued(300 * time.Second)},
		{"token_type DPoP", standard("token_type", "DPoP"), idToken, fault(faultTokenType)},
		{"token_type with a blank", standard("token_type", "Bearer "), idToken, fault(faultTokenType)},
		{"no token_type", standard("token_type", nil), idToken, fault(faultTokenType)},

		{"no expires_in", standard("expires_in", nil), idToken, issued(0)},
		{"expires_in with a fraction", standard("expires_in", 299.9), idToken, issued(299 * time.Second)},
		{"expires_in 1e3", `{"access_token":"issued-token","token_type":"N_A","issued_token_type":"id_token","expires_in":1e3}`, idToken, issued(1000 * time.Second)},
		{"expires_in huge", standard("expires_in", 1e300), idToken, issued(maxLife)},
		{"expires_in beyond numbers", `{"access_token":"issued-token","token_type":"N_A","issued_token_type":"id_token","expires_in":1e999}`, idToken, issued(maxLife)},
		{"expires_in 0", standard("expires_in", 0), idToken, fault(faultExpired)},
		{"expires_in negative", standard("expires_in", -5), idToken, fault(faultExpired)},
		{"expires_in as text", standard("expires_in", "300"), idToken, issued(300 * time.Second)},
		{"expires_in 0 as text", standard("expires_in", "0"), idToken, fault(faultExpired)},
		{"expires_in in words", standard("expires_in", "5 minutes"), idToken, fault(faultMember)},
		{"expires_in empty", standard("expires_in", ""), idToken, fault(faultMember)},
		{"expires_in true", standard("expires_in", true), idToken, fault(faultMember)},

		{"access_token number", standard("access_token", 7), idToken, fault(faultMember)},
		{"id_token object", standard("id_token", object{}), accessToken, fault(faultMember)},
		{"issued_token_type list", standard("issued_token_type", []string{"id_token"}), idToken, fault(faultMember)},
		{"token_type list", standard("token_type", []string{"Bearer"}), idToken, fault(faultMember)},

		{"no token", standard("access_token", nil), idToken, fault(faultNoToken)},
		{"empty token", standard("access_token", ""), idToken, fault(faultNoToken)},
		{"refresh token alone", standard("access_token", nil, "refresh_token", "r"), accessToken, fault(faultNoToken)},
		{"access token for an ID token", standard("issued_token_type", "AccessToken"), idToken, fault(faultNoToken)},

		{"64 KiB", standard("access_token", long), idToken, want{Value: long, Life: 300 * time.Second}},
		{"over 64 KiB", standard("access_token", long+"x"), idToken, fault(faultBytes)},
		{"padding", standard("access_token", "a=="), idToken, want{Value: "a==", Life: 300 * time.Second}},

		{"empty body", "", idToken, fault(faultNotJSON)},
		{"HTML", "<html>", idToken, fault(faultNotJSON)},
		{"a form", "access_token=a&token_type=Bearer", idToken, fault(faultNotJSON)},
		{"a list", `[{"access_token":"a"}]`, idToken, fault(faultNotJSON)},
		{"null", "null", idToken, fault(faultNotJSON)},
		{"broken off", `{"access_token":"a"`, idToken, fault(faultNotJSON)},
		{"a colon is missing", `{"access_token" "a"}`, idToken, fault(faultNotJSON)},
		{"a second value", `{"access_token":"a","token_type":"Bearer"}{}`, idToken, fault(faultNotJSON)},
		{"text behind", `{"access_token":"a","token_type":"Bearer"} x`, idToken, fault(faultNotJSON)},
		{"a name twice", `{"access_token":"issued-token","token_type":"N_A","issued_token_type":"id_token","access_token":"issued-token"}`, idToken, fault(faultNotJSON)},
		{"a name twice, escaped", `{"access_token":"issued-token","token_type":"N_A","issued_token_type":"id_token","\u0061ccess_token":"x"}`, idToken, fault(faultNotJSON)},
		{"no UTF-8", "{\"access_token\":\"issued-token\",\"token_type\":\"N_A\",\"issued_token_type\":\"id_token\",\"x\":\"\xff\"}", idToken, fault(faultNotJSON)},
		{"blanks around", " \r\n" + `{"access_token":"issued-token","token_type":"N_A","issued_token_type":"id_token"}` + "\n\t ", idToken, issued(0)},
		{"deep", strings.Repeat(`{"a":`, 20000), idToken, fault(faultNotJSON)},
		{"Kanidm without the ID token", plus(kanidm, "id_token", ""), idToken, fault(faultNoToken)},
		{"Kanidm with an unknown type", plus(kanidm, "issued_token_type", "Whatever"), accessToken, fault(faultNoToken)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, with(200, tt.answer))
			token, err := exchange(t, s.client(t, nil), tt.use)
			var got want
			if err == nil {
				got = want{Value: token.Value, Life: token.Life}
			} else if !errors.As(err, &got.Fault) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A token becomes a header: no byte gets there that a bearer cannot have.
func TestTokenBytes(t *testing.T) {
	for c := range 256 {
		good := c > ' ' && c < 0x7f
		for _, token := range []string{"ab" + string([]byte{byte(c)}) + "cd", string([]byte{byte(c)}) + "cd"} {
			if got := idp.IsBearer(token); got != good {
				t.Errorf("%q: %t", token, got)
			}
		}
	}
}

// AUTH-16: a 4xx with an OAuth error is a refusal, anything else a fault, and
// none of the provider's text is in either.
func TestRefusals(t *testing.T) {
	const told = "the user robot-7 has been locked by admin@example.test"
	oauth := func(code any) object {
		return object{"error": code, "error_description": told, "error_uri": "https://" + told}
	}
	for _, tt := range []struct {
		status int
		answer any
		want   string
	}{
		{400, oauth("invalid_target"), "refused invalid_target"},
		{400, oauth("invalid_request"), "refused invalid_request"},
		{400, oauth("invalid_grant"), "refused invalid_grant"},
		{400, oauth("invalid_scope"), "refused invalid_scope"},
		{400, oauth("unsupported_grant_type"), "refused unsupported_grant_type"},
		{401, oauth("invalid_client"), "refused invalid_client"},
		{401, oauth("invalid_token"), "refused invalid_token"},
		{403, oauth("access_denied"), "refused access_denied"},
		{404, oauth("invalid_target"), "refused invalid_target"},
		{422, oauth("something_of_theirs"), "refused other"},
		{499, oauth("interaction_required"), "refused other"},
		{400, `{"error":"invalid_grant","extra":[1,{"error":2}]}`, "refused invalid_grant"},

		// The provider has judged nothing.
		{408, oauth("invalid_grant"), "fault"},
		{425, oauth("invalid_grant"), "fault"},
		{429, oauth("invalid_grant"), "fault"},
		{429, oauth("slow_down"), "fault"},
		{400, oauth("slow_down"), "fault"},
		{400, oauth("server_error"), "fault"},
		{400, oauth("temporarily_unavailable"), "fault"},

		// It is no OAuth error.
		{404, oauth("Not Found"), "fault"},
		{401, oauth("Unauthorized"), "fault"},
		{400, oauth(""), "fault"},
		{400, oauth(nil), "fault"},
		{400, oauth(7), "fault"},
		{400, oauth(object{"code": "invalid_grant"}), "fault"},
		{400, oauth(strings.Repeat("a", 65)), "fault"},
		{400, oauth("invalid_grant\n"), "fault"},
		{400, object{"message": told}, "fault"},
		{400, `{"error":"invalid_grant","error":"invalid_grant"}`, "fault"},
		{400, `["invalid_grant"]`, "fault"},
		{400, "error=invalid_grant", "fault"},
		{404, "404 page not found", "fault"},
		{403, "", "fault"},
	} {
		t.Run(fmt.Sprint(tt.status, " ", tt.want), func(t *testing.T) {
			s := newServer(t, with(tt.status, tt.answer))
			_, err := exchange(t, s.client(t, nil), idToken)
			if got := kindOf(err); got != tt.want {
				t.Errorf("%v: %s, want %s", tt.answer, got, tt.want)
			}
			for _, piece := range []string{"robot", "locked", "something", "interaction", "Not Found", "page"} {
				if strings.Contains(fmt.Sprintf("%v %+v", err, err), piece) {
					t.Errorf("the error holds the provider's words: %v", err)
				}
			}
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests of a public client", n)
			}
		})
	}
}

// OBS-01: no error holds a piece of a token or of the secret, whatever the
// provider makes of them.
func TestNoCredentialInErrors(t *testing.T) {
	const subject, secret, issued = "subject-0123456789abcdef", "secret-0123456789abcdef", "issued-0123456789abcdef"
	for _, answer := range []any{
		object{"error": subject}, object{"error": secret}, object{"error": "invalid_client", "error_description": subject + secret},
		object{"access_token": issued + "\n", "token_type": "Bearer", "id_token": issued + " "},
		object{"access_token": issued, "token_type": issued, "id_token": subject},
		object{"access_token": issued, "token_type": "Bearer", "issued_token_type": subject}, subject, secret + issued,
		`{"` + subject + `":"` + secret, `{"access_token":"` + issued + `","access_token":"` + issued + `"}`,
	} {
		for _, status := range []int{200, 301, 400, 401, 500} {
			s := newServer(t, with(status, answer))
			c := s.client(t, func(c *k8swatch.TokenExchange) { c.ClientSecret = secret })
			_, err := c.Exchange(t.Context(), subject)
			if err == nil {
				t.Fatalf("%d %v: no error", status, answer)
			}
			text := fmt.Sprintf("%v %+v %#v", err, err, err)
			for _, credential := range []string{subject, secret, issued} {
				for i := 0; i+8 <= len(credential); i++ {
					if strings.Contains(text, credential[i:i+8]) {
						t.Fatalf("%d %v: %s", status, answer, text)
					}
				}
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"access_token":"a","token_type":"Bearer","issued_token_type":"AccessToken","id_token":"b","expires_in":9}`))
	f.Add([]byte(`{"access_token":"a","access_token":"b"}`))
	f.Add([]byte(`{"a":{"b":[1,2,{}]},"token_type":"n_a"} `))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, use := range []string{idToken, accessToken} {
			token, err := read(body, &k8swatch.TokenExchange{Forward: use})
			var fault idp.Fault
			switch {
			case err != nil && !errors.As(err, &fault):
				t.Errorf("%v is no fault", err)
			case err == nil && (!idp.IsBearer(token.Value) || token.Life < 0 || token.Life > maxLife):
				t.Errorf("token of %d bytes for %v", len(token.Value), token.Life)
			}
		}
	})
}

// AUTH-13: an answer with too many members is not made room for.
func TestTooManyMembers(t *testing.T) {
	answer := func(n int) []byte {
		var b strings.Builder
		b.WriteString(`{"access_token":"a","token_type":"Bearer"`)
		for i := range n - 2 {
			fmt.Fprintf(&b, `,"m%d":0`, i)
		}
		return []byte(b.String() + "}")
	}
	if _, err := read(answer(1000), &k8swatch.TokenExchange{Forward: accessToken}); err != nil {
		t.Errorf("1000 members: %v", err)
	}
	if _, err := read(answer(1001), &k8swatch.TokenExchange{Forward: accessToken}); err != idp.TooManyMembers {
		t.Errorf("1001 members: %v", err)
	}
	err := oauthError(&idp.Response{Status: 400, Body: answer(1001)})
	var fault idp.Fault
	if !errors.As(err, &fault) {
		t.Errorf("1001 members of an error: %v", err)
	}
}
