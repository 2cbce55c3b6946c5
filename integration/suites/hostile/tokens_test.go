package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// anyWay runs a test with both client protocols, in FrontProxy and Passthrough.
func anyWay(t *testing.T, f func(t *testing.T, w way)) {
	t.Helper()
	for _, cluster := range []string{fpH2, ptH2} {
		for _, protocol := range []string{h1, h2} {
			t.Run(protocol+" to "+cluster, func(t *testing.T) {
				f(t, way{px: shared.px, protocol: protocol, cluster: cluster, up: shared.ups[cluster]})
			})
		}
	}
}

// TOK-01, AUTH-5: a key that the issuer began to use is found on the first
// try, and one that it withdrew counts no more, not even from the cache.
func TestTOK01KeyRotation(t *testing.T) {
	idp := oidc.Start(t, oidc.Options{Users: users()})
	up := rawserver.Start(t, rawserver.Options{})
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"cluster-a.yaml": frontProxy("cluster-a", up.URL, up, proxy.Authenticator(idp)),
	}})
	px.MustServe(t, ns, "cluster-a")
	ask := func(token string) int {
		return do(t, px, h1, call{cluster: "cluster-a", path: "/api"}.bearer(token)).Code
	}
	old := idp.Token(oidc.Alice, nil)
	if code := ask(old); code != http.StatusOK {
		t.Fatalf("k1: code %d", code)
	}
	before := idp.Calls(oidc.Keys)
	if err := idp.AddKey("k2", jose.RS256); err != nil {
		t.Fatal(err)
	}
	idp.WithdrawKey(oidc.K1)
	fresh := idp.Mint(idp.Claims(oidc.Alice, nil), oidc.Sign{KeyID: "k2"})
	if code := ask(fresh); code != http.StatusOK {
		t.Errorf("k2, first try: code %d", code)
	}
	if got := idp.Calls(oidc.Keys) - before; got != 1 {
		t.Errorf("%d reads of the key set, want 1", got)
	}
	up.Reset()
	if code := ask(old); code != http.StatusUnauthorized {
		t.Errorf("k1, withdrawn, same token as before: code %d", code)
	}
	if code := ask(idp.Mint(idp.Claims(oidc.Alice, nil), oidc.Sign{KeyID: oidc.K1})); code != http.StatusUnauthorized {
		t.Errorf("k1, withdrawn, new token: code %d", code)
	}
	up.None(t)
	// Unknown keys and bad signatures do not make the issuer busy.
	before = idp.Calls(oidc.Keys)
	for i := range 20 {
		claims := idp.Claims(oidc.Alice, nil)
		ask(idp.Mint(claims, oidc.Sign{KeyID: "k2", Header: map[string]any{"kid": fmt.Sprint("unknown", i)}}))
		ask(oidc.FlipSignatureBit(idp.Mint(claims, oidc.Sign{KeyID: "k2"})))
	}
	if got := idp.Calls(oidc.Keys) - before; got != 0 {
		t.Errorf("%d reads for tokens that an attacker made", got)
	}
	if code := ask(fresh); code != http.StatusOK {
		t.Errorf("k2: code %d", code)
	}
}

// TOK-03, AUTH-4: signatures that count.
func TestTOK03Accepted(t *testing.T) {
	idp := shared.idp
	for _, alg := range []jose.SignatureAlgorithm{"ES384", "ES512", "EdDSA"} {
		if err := idp.AddKey(string(alg), alg); err != nil {
			t.Fatal(err)
		}
	}
	claims := idp.Claims(oidc.Alice, nil)
	tokens := map[string]string{
		"RS256": idp.Mint(claims, oidc.Sign{}), "ES256": idp.Mint(claims, oidc.Sign{KeyID: oidc.E1}),
		"no kid": idp.Mint(claims, oidc.Sign{Header: map[string]any{"kid": nil}}),
	}
	for _, alg := range []jose.SignatureAlgorithm{"RS384", "RS512"} {
		// The published key says alg RS256: what does not fit is refused.
		tokens["!"+string(alg)] = idp.Mint(claims, oidc.Sign{Alg: alg})
	}
	for _, alg := range []string{"ES384", "ES512", "EdDSA"} {
		tokens[alg] = idp.Mint(claims, oidc.Sign{KeyID: alg})
	}
	for name, token := range tokens {
		t.Run(name, func(t *testing.T) {
			anyWay(t, func(t *testing.T, w way) {
				if strings.HasPrefix(name, "!") {
					w.refused(t, call{path: "/api"}.bearer(token), http.StatusUnauthorized, "")
					return
				}
				w.relayed(t, call{path: "/api"}.bearer(token))
			})
		})
	}
}

// TOK-03: those that never do. Nothing goes upstream and no URL of a token is
// fetched.
func TestTOK03Refused(t *testing.T) {
	idp := shared.idp
	elsewhere := idp.Calls(oidc.Elsewhere)
	claims := idp.Claims(oidc.Alice, nil)
	good := idp.Mint(claims, oidc.Sign{})
	parts := strings.Split(good, ".")
	tokens := map[string]string{
		"alg none":                  idp.Unsigned(claims, "none"),
		"alg nOnE":                  idp.Unsigned(claims, "nOnE"),
		"alg NONE":                  idp.Unsigned(claims, "NONE"),
		"alg empty":                 idp.Unsigned(claims, ""),
		"alg none with a signature": idp.Mint(claims, oidc.Sign{Header: map[string]any{"alg": "none"}}),
		"alg rs256":                 idp.Mint(claims, oidc.Sign{Header: map[string]any{"alg": "rs256"}}),
		"no alg":                    idp.Mint(claims, oidc.Sign{Header: map[string]any{"alg": nil}}),
		"HS256 with the PEM of k1":  idp.SymmetricWithPublicKey(claims, oidc.K1),
		"HS256 with the PEM of e1":  idp.SymmetricWithPublicKey(claims, oidc.E1),
		"RS256 over an EC key":      idp.WrongAlgorithm(claims, oidc.E1, "RS256"),
		"ES256 over an RSA key":     idp.WrongAlgorithm(claims, oidc.K1, "ES256"),
		"ES384 over a P-256 key":    idp.WrongAlgorithm(claims, oidc.E1, "ES384"),
		"an embedded jwk":           idp.EmbeddedKey(claims),
		"a jku elsewhere":           idp.KeyURL(claims, idp.ElsewhereURL()),
		"a jku elsewhere, known kid": idp.Mint(claims, oidc.Sign{Header: map[string]any{
			"jku": idp.ElsewhereURL(), "x5u": idp.ElsewhereURL(), "crit": []string{"jku"}}}),
		"an unknown critical header": idp.Mint(claims, oidc.Sign{Header: map[string]any{"crit": []string{"x"}, "x": 1}}),
		"b64 false":                  idp.Mint(claims, oidc.Sign{Header: map[string]any{"crit": []string{"b64"}, "b64": false}}),
		"a flipped bit":              oidc.FlipSignatureBit(good),
		"an empty signature":         parts[0] + "." + parts[1] + ".",
		"no signature":               parts[0] + "." + parts[1],
		"five parts":                 good + "." + parts[1] + "." + parts[2],
		"another payload": parts[0] + "." + strings.Split(idp.Mint(idp.Claims(oidc.Alice, map[string]any{"groups": []string{"system:masters"}}), oidc.Sign{}), ".")[1] +
			"." + parts[2],
		"another header":    strings.Split(idp.Mint(claims, oidc.Sign{Header: map[string]any{"x": 1}}), ".")[0] + "." + parts[1] + "." + parts[2],
		"JSON form":         `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"padding":           good + "=",
		"logout token":      idp.Mint(claims, oidc.Sign{Header: map[string]any{"typ": "logout+jwt"}}),
		"other issuer":      idp.Token(oidc.Alice, map[string]any{"iss": idp.Issuer + "/"}),
		"other audience":    idp.Token(oidc.Alice, map[string]any{"aud": "proxy-b"}),
		"azp alone":         idp.Token(oidc.Alice, map[string]any{"aud": "proxy-b", "azp": oidc.ClientID}),
		"no audience":       idp.Token(oidc.Alice, map[string]any{"aud": nil}),
		"audience a number": idp.Token(oidc.Alice, map[string]any{"aud": 1}),
		"opaque":            "opaque-token-of-a-machine",
	}
	for name, token := range tokens {
		t.Run(name, func(t *testing.T) {
			anyWay(t, func(t *testing.T, w way) { w.refused(t, call{path: "/api"}.bearer(token), http.StatusUnauthorized, "") })
		})
	}
	if got := idp.Calls(oidc.Elsewhere) - elsewhere; got != 0 {
		t.Errorf("%d calls to a URL that a token named", got)
	}
}

// TOK-05, AUTH-4: exp without leeway, nbf five minutes, iat not looked at.
func TestTOK05Times(t *testing.T) {
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	tests := map[string]struct {
		changes map[string]any
		code    int
	}{
		"nbf and iat 20 s ahead":        {map[string]any{"nbf": at(20 * time.Second), "iat": at(20 * time.Second)}, 200},
		"nbf 4 min ahead":               {map[string]any{"nbf": at(4 * time.Minute)}, 200},
		"nbf 10 min ahead":              {map[string]any{"nbf": at(10 * time.Minute), "exp": at(time.Hour)}, 401},
		"no nbf, no iat":                {map[string]any{"nbf": nil, "iat": nil}, 200},
		"iat an hour ahead":             {map[string]any{"iat": at(time.Hour)}, 200},
		"iat nonsense":                  {map[string]any{"iat": "yesterday"}, 200},
		"exp 5 s ago":                   {map[string]any{"exp": at(-5 * time.Second)}, 401},
		"exp now":                       {map[string]any{"exp": at(0)}, 401},
		"no exp":                        {map[string]any{"exp": nil}, 401},
		"exp null":                      {map[string]any{"exp": json.RawMessage("null")}, 401},
		"exp a string":                  {map[string]any{"exp": fmt.Sprint(at(time.Hour))}, 401},
		"exp 1e300":                     {map[string]any{"exp": json.RawMessage("1e300")}, 401},
		"exp 1e19":                      {map[string]any{"exp": json.RawMessage("1e19")}, 401},
		"exp beyond int64":              {map[string]any{"exp": json.RawMessage("92233720368547758080")}, 401},
		"exp negative":                  {map[string]any{"exp": -1}, 401},
		"exp true":                      {map[string]any{"exp": true}, 401},
		"exp an array":                  {map[string]any{"exp": []int64{at(time.Hour)}}, 401},
		"exp with a fraction":           {map[string]any{"exp": json.RawMessage(fmt.Sprintf("%d.5", at(time.Hour)))}, 200},
		"nbf a string":                  {map[string]any{"nbf": "0"}, 401},
		"nbf 1e300":                     {map[string]any{"nbf": json.RawMessage("1e300")}, 401},
		"EXP beside a past exp":         {map[string]any{"exp": at(-time.Minute), "EXP": at(time.Hour), "Exp": at(time.Hour)}, 401},
		"expired long ago, nbf earlier": {map[string]any{"exp": at(-time.Hour), "nbf": at(-2 * time.Hour), "iat": at(-2 * time.Hour)}, 401},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bearer := token(tc.changes)
			anyWay(t, func(t *testing.T, w way) { w.judged(t, bearer, tc.code) })
		})
	}
	// A token that ends while it is in the cache ends there too.
	t.Run("exp of a cached token", func(t *testing.T) {
		w := way{px: shared.px, protocol: h1, cluster: fpH2, up: shared.ups[fpH2]}
		expires := time.Now().Add(3 * time.Second)
		bearer := token(map[string]any{"exp": expires.Unix()})
		w.judged(t, bearer, 200)
		time.Sleep(time.Until(time.Unix(expires.Unix(), 0)))
		w.judged(t, bearer, 401)
	})
}

// judged sends a token to an API path and to /version and expects that code
// from the proxy, and nothing upstream when it refuses.
func (w way) judged(t *testing.T, bearer string, code int) {
	t.Helper()
	for _, path := range []string{"/api", "/version"} {
		if code == http.StatusOK {
			if a := w.do(t, call{path: path}.bearer(bearer)); a.Code != code {
				t.Errorf("%s: code %d: %s", path, a.Code, a.Body)
			}
			continue
		}
		w.refused(t, call{path: path}.bearer(bearer), code, "")
	}
}

// TOK-06, AUTH-10: the shapes of groups and of the name.
func TestTOK06Shapes(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	groups := map[string]struct {
		claim any
		want  []string // nil with refused: 401
		code  int
	}{
		"a string":                 {"ops", []string{"ops"}, 200},
		"two in order":             {[]string{"ops", "dev"}, []string{"ops", "dev"}, 200},
		"a duplicate":              {[]string{"ops", "dev", "ops"}, []string{"ops", "dev"}, 200},
		"absent":                   {nil, nil, 200},
		"null":                     {raw("null"), nil, 200},
		"an empty array":           {raw("[]"), nil, 200},
		"brackets in a string":     {"[ops]", []string{"[ops]"}, 200},
		"JSON in a string":         {`["ops","dev"]`, []string{`["ops","dev"]`}, 200},
		"a comma in a string":      {"ops,dev", []string{"ops,dev"}, 200},
		"a number among them":      {raw(`["ops",1]`), nil, 401},
		"null among them":          {raw(`["ops",null]`), nil, 401},
		"an array among them":      {raw(`[["ops"]]`), nil, 401},
		"an object":                {raw(`{"a":1}`), nil, 401},
		"true":                     {true, nil, 401},
		"a number":                 {7, nil, 401},
		"invalid UTF-8":            {raw("\"o\xffps\""), nil, 401},
		"a lone surrogate":         {raw(`"o\ud800ps"`), nil, 401},
		"an empty string, refused": {raw(`[""]`), nil, 403},
	}
	for name, tc := range groups {
		t.Run("groups: "+name, func(t *testing.T) {
			claims := shared.idp.Claims(oidc.Alice, map[string]any{"groups": nil})
			bearer := shared.idp.Mint(claims, payloadWith(t, claims, "groups", tc.claim))
			for _, protocol := range []string{h1, h2} {
				w := way{px: shared.px, protocol: protocol, cluster: fpH2, up: shared.ups[fpH2]}
				if tc.code != http.StatusOK {
					w.refused(t, call{path: "/api"}.bearer(bearer), tc.code, "")
					continue
				}
				got := w.relayed(t, call{path: "/api"}.bearer(bearer)).Identity.Unprefixed(prefix)
				want := &rawserver.Identity{User: oidc.Alice, Groups: tc.want, Extra: map[string][]string{extraKey: {"read", "write"}}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("identity (-want +got):\n%s", diff)
				}
			}
		})
	}
	for name, tc := range map[string]struct {
		claim any
		code  int
	}{
		"a number": {42, 401}, "an array": {raw("[]"), 401}, "an array of one": {[]string{"alice"}, 401}, "an object": {raw("{}"), 401},
		"true": {true, 401}, "absent": {nil, 401}, "invalid UTF-8": {raw("\"al\xffice\""), 401},
		"null": {raw("null"), 403}, "empty": {"", 403}, "blank": {" \t ", 403}, "no-break spaces": {"\u00a0\u2003", 403},
	} {
		t.Run("name: "+name, func(t *testing.T) {
			claims := shared.idp.Claims(oidc.Alice, map[string]any{"preferred_username": nil})
			bearer := shared.idp.Mint(claims, payloadWith(t, claims, "preferred_username", tc.claim))
			anyWay(t, func(t *testing.T, w way) { w.refused(t, call{path: "/api"}.bearer(bearer), tc.code, "") })
		})
	}
}

// payloadWith is a payload of claims and one more, written as it is: a JSON
// library would repair what some of the tests send.
func payloadWith(t *testing.T, claims map[string]any, name string, value any) oidc.Sign {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	if value == nil {
		return oidc.Sign{Payload: payload}
	}
	written, ok := value.(json.RawMessage)
	if !ok {
		if written, err = json.Marshal(value); err != nil {
			t.Fatal(err)
		}
	}
	return oidc.Sign{Payload: append(payload[:len(payload)-1], fmt.Sprintf(`,%q:%s}`, name, written)...)}
}

// TOK-08, AUTH-11: an address is a name only once it is verified.
func TestTOK08EmailVerified(t *testing.T) {
	up := rawserver.Start(t, rawserver.Options{})
	a := proxy.Authenticator(shared.idp)
	email, expression := "email", "claims.email_verified == true ? claims.email : ''"
	a.ClaimMappings.Username.Claim = &email
	byExpression := proxy.Authenticator(shared.idp)
	byExpression.ClaimMappings.Username = &v1.PrefixedClaimOrExpression{Expression: &expression}
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"claim.yaml": frontProxy("claim", up.URL, up, a), "expression.yaml": frontProxy("expression", up.URL, up, byExpression),
	}})
	px.MustServe(t, ns, "claim")
	px.MustServe(t, ns, "expression")
	tests := map[string]struct {
		verified any
		code     int
	}{
		"true": {true, 200}, "false": {false, 401}, "a string": {"true", 401}, "one": {1, 401}, "null": {json.RawMessage("null"), 401},
		"absent": {nil, 401}, "an array": {[]bool{true}, 401}, "an object": {map[string]bool{"true": true}, 401},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bearer := token(map[string]any{"email_verified": tc.verified})
			for _, path := range []string{"/api", "/version", "/", "/api/v1/namespaces?watch=true", "/metrics"} {
				bothProtocols(t, func(t *testing.T, protocol string) {
					w := way{px: px, protocol: protocol, cluster: "claim", up: up}
					if tc.code != http.StatusOK {
						w.refused(t, call{path: path}.bearer(bearer), tc.code, "not verified")
						return
					}
					a := w.do(t, call{path: path}.bearer(bearer))
					if a.Code != http.StatusOK || up.Only(t).Identity.User != prefix+"alice@example.test" {
						t.Errorf("code %d, %v", a.Code, up.Requests())
					}
				})
			}
			w := way{px: px, protocol: h1, cluster: "claim", up: up}
			up.Handle(rawserver.Echo)
			defer up.Handle(nil)
			c := call{cluster: "claim", path: execPath, lines: rawclient.UpgradeLines("Sec-WebSocket-Protocol: " + entry(bearer) + ", v5.channel.k8s.io")}
			if tc.code != http.StatusOK {
				w.refused(t, c, tc.code, "not verified")
			} else if a := w.do(t, c); a.Code != http.StatusSwitchingProtocols {
				t.Errorf("upgrade: code %d", a.Code)
			}
		})
	}
	// An expression decides itself; what it does not say is refused.
	for name, tc := range tests {
		t.Run("by expression: "+name, func(t *testing.T) {
			w := way{px: px, protocol: h1, cluster: "expression", up: up}
			a := w.do(t, call{path: "/api"}.bearer(token(map[string]any{"email_verified": tc.verified})))
			if (a.Code == http.StatusOK) != (tc.code == http.StatusOK) || a.Code >= 500 {
				t.Errorf("code %d: %s", a.Code, a.Body)
			}
		})
	}
}

// TOK-10, ID-2: it is the concatenation that must not be Kubernetes' own, and
// it refuses the whole request.
func TestTOK10SystemNames(t *testing.T) {
	up := rawserver.Start(t, rawserver.Options{})
	clusters := map[string]string{}
	for name, prefixes := range map[string][2]string{"plain": {"t:", "t:"}, "user": {"sys", "t:"}, "group": {"t:", "system"}, "refused": {"t:", "t:"}} {
		clusters[name+".yaml"] = frontProxyWith(name, up, up.FrontProxy(1), proxy.Authenticator(shared.idp), func(s *v1.ProxyKubeApiSpec) {
			s.UpstreamAuth.UserPrefix, s.UpstreamAuth.GroupPrefix = &prefixes[0], &prefixes[1]
		})
	}
	reserved := "system:"
	clusters["admission.yaml"] = frontProxyWith("admission", up, up.FrontProxy(1), proxy.Authenticator(shared.idp), func(s *v1.ProxyKubeApiSpec) {
		s.UpstreamAuth.GroupPrefix = &reserved
	})
	px := proxy.Start(t, proxy.Options{Manifests: clusters})
	for _, name := range []string{"plain", "user", "group"} {
		px.MustServe(t, ns, name)
	}
	refusals := `proxyauth_upstream_identity_refused_total{reason="system_prefix"}`
	tests := []struct {
		name, cluster string
		changes       map[string]any
		want          *rawserver.Identity // nil: refused
	}{
		{"a prefixed system group is an ordinary one", "plain", map[string]any{"groups": []string{"dev", "system:masters"}},
			&rawserver.Identity{User: "t:alice", Groups: []string{"t:dev", "t:system:masters"}, Extra: map[string][]string{}}},
		{"a prefixed system user too", "plain", map[string]any{"preferred_username": "system:admin"},
			&rawserver.Identity{User: "t:system:admin", Groups: []string{"t:dev", "t:ops"}, Extra: map[string][]string{}}},
		{"user made of two halves", "user", map[string]any{"preferred_username": "tem:admin"}, nil},
		{"group made of two halves", "group", map[string]any{"groups": ":masters"}, nil},
		{"group among good ones", "group", map[string]any{"groups": []string{"-dev", ":masters", "-ops"}}, nil},
		{"nothing after the colon", "group", map[string]any{"groups": []string{"s:masters", ":", "_masters"}}, nil},
		{"no miss", "group", map[string]any{"groups": []string{"s:masters", "-masters"}},
			&rawserver.Identity{User: "t:alice", Groups: []string{"systems:masters", "system-masters"}, Extra: map[string][]string{}}},
		{"case counts", "user", map[string]any{"preferred_username": "Tem:admin"},
			&rawserver.Identity{User: "sysTem:admin", Groups: []string{"t:dev", "t:ops"}, Extra: map[string][]string{}}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, protocol string) {
				w := way{px: px, protocol: protocol, cluster: tc.cluster, up: up}
				c := call{path: "/api"}.bearer(token(tc.changes))
				if tc.want != nil {
					if diff := cmp.Diff(tc.want, w.relayed(t, c).Identity); diff != "" {
						t.Errorf("identity (-want +got):\n%s", diff)
					}
					return
				}
				before := px.MustCounter(t, refusals)
				w.refused(t, c, http.StatusForbidden, "has a reserved system: name or group")
				if got := px.MustCounter(t, refusals) - before; got != 1 {
					t.Errorf("counted %d times", got)
				}
			})
		})
	}
	t.Run("admission refuses the prefix", func(t *testing.T) {
		s := px.MustCluster(t, ns, "admission", func(s *proxy.ClusterStatus) bool { return s.Ready() != "" })
		if s.Ready() != "False/InvalidSpec" || s.Status.Error == nil || !strings.Contains(*s.Status.Error, "group_prefix") {
			t.Errorf("%s: %+v", s.Ready(), s.Status)
		}
		w := way{px: px, protocol: h1, cluster: "admission", up: up}
		w.refused(t, call{path: "/api"}.asAlice(), http.StatusServiceUnavailable, "this cluster is not ready")
	})
}
