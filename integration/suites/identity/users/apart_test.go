package users

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// A presented bearer is told apart by itself (AUTH-14).
type presented struct {
	name  string
	token string
	// who it is a good credential of: without and with token exchange, by an
	// OidcProvider that introspects. Empty is 401.
	plain, exchanged, introspected string
	// opaque is whether the bearer may be shown to a token endpoint, and to an
	// introspection endpoint where nothing is exchanged.
	opaque, introspectable bool
}

// bearers are humans' and machines' on one URL.
func (w *world) bearers(t *testing.T) []presented {
	human := func(name, token string) presented {
		return presented{name: name, token: token, plain: oidc.Alice, exchanged: oidc.Alice, introspected: oidc.Alice}
	}
	refused := func(name, token string) presented { return presented{name: name, token: token} }
	claims := w.idp.Claims(oidc.Alice, nil)
	valid := w.idp.Mint(claims, oidc.Sign{})
	others := w.kanidm.Token(oidc.Alice, nil)
	parts := strings.Split(others, ".")
	raw := func(payload string) string { return w.idp.Mint(nil, oidc.Sign{Payload: []byte(payload)}) }
	body := fmt.Sprintf(`"sub":"subject-alice","aud":%q,"preferred_username":"alice","exp":%d`, oidc.ClientID, time.Now().Add(time.Hour).Unix())
	jwe := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"RSA-OAEP","enc":"A256GCM","iss":%q}`, w.kanidm.Issuer)) + ".AAAA.AAAA.AAAA.AAAA"
	live := w.idp.MustLogin(t, oidc.Alice, oidc.OpaqueClientID).AccessToken
	return []presented{
		human("own issuer, valid", valid),
		refused("own issuer, expired", w.idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(-5 * time.Second).Unix()})),
		refused("own issuer, not yet valid", w.idp.Token(oidc.Alice, map[string]any{"nbf": time.Now().Add(9 * time.Minute).Unix()})),
		refused("own issuer, for another cluster", w.idp.Token(oidc.Alice, map[string]any{"aud": otherID})),
		refused("own issuer, a login at another cluster", w.idp.MustLogin(t, oidc.Alice, otherID).AccessToken),
		refused("own issuer, its id_token", w.idp.MustLogin(t, oidc.Alice, otherID).IDToken),
		refused("own issuer, changed signature", oidc.FlipSignatureBit(valid)),
		refused("own issuer, unsigned", w.idp.Unsigned(claims, "none")),
		refused("another issuer", others),
		refused("another issuer, expired", w.kanidm.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})),
		refused("another issuer, unsigned", w.kanidm.Unsigned(w.kanidm.Claims(oidc.Alice, nil), "none")),
		refused("a slash behind the issuer", w.idp.Token(oidc.Alice, map[string]any{"iss": w.idp.Issuer + "/"})),
		refused("an issuer that is no text", w.idp.Token(oidc.Alice, map[string]any{"iss": []string{w.idp.Issuer}})),
		refused("an empty issuer", w.idp.Token(oidc.Alice, map[string]any{"iss": ""})),
		refused("two issuers", raw(fmt.Sprintf(`{"iss":%q,"iss":%q,%s}`, w.kanidm.Issuer, w.idp.Issuer, body))),
		refused("an issuer in capitals", raw(fmt.Sprintf(`{"ISS":%q,%s}`, w.kanidm.Issuer, body))),
		refused("an issuer in escapes", raw(fmt.Sprintf(`{"\u0069ss":%q,%s}`, w.kanidm.Issuer, body))),
		refused("an issuer in the header alone", w.idp.Mint(nil, oidc.Sign{Payload: []byte("{" + body + "}"), Header: map[string]any{"iss": w.kanidm.Issuer}})),
		refused("an encrypted token that names an issuer", jwe),
		refused("malformed: a letter that is not base64url", parts[0]+"."+parts[1][:8]+"+"+parts[1][9:]+"."+parts[2]),
		refused("malformed: padding", parts[0]+"."+parts[1]+"=."+parts[2]),
		refused("malformed: a part too many", others+"."+parts[2]),
		refused("malformed: a part too few", parts[0]+"."+parts[1]),
		refused("malformed: no signature", parts[0]+"."+parts[1]+"."),
		refused("malformed: half a payload", parts[0]+"."+parts[1][:len(parts[1])/2]+"."+parts[2]),
		{name: "a machine's JWS without an issuer", token: w.idp.APITokenJWS(oidc.Robot), exchanged: oidc.Robot, opaque: true},
		{name: "a stranger's JWS without an issuer", token: w.kanidm.APITokenJWS(oidc.Robot), opaque: true},
		{name: "a machine's opaque token", token: w.idp.APIToken(oidc.Robot), exchanged: oidc.Robot, opaque: true, introspectable: true},
		{name: "a stranger's opaque token", token: w.kanidm.APIToken(oidc.Robot), opaque: true, introspectable: true},
		{name: "an opaque access token", token: live, introspected: oidc.Alice, exchanged: oidc.Alice, opaque: true, introspectable: true},
	}
}

// calls is what the endpoints that see tokens were asked, and what arrived
// upstream.
type calls struct{ Token, Userinfo, Introspection, Elsewhere, Upstream int }

func (w *world) count(at *oidc.Provider, f front) calls {
	return calls{at.Calls(oidc.Token), at.Calls(oidc.Userinfo), at.Calls(oidc.Introspection), at.Calls(oidc.Elsewhere), len(w.records[f.mode].Requests())}
}

func (c calls) since(before calls) calls {
	return calls{c.Token - before.Token, c.Userinfo - before.Userinfo, c.Introspection - before.Introspection, c.Elsewhere - before.Elsewhere, c.Upstream - before.Upstream}
}

// AUTH-14: humans and machines on one URL. A token that is not for this cluster
// is sent nowhere: not to its token_url, not to its userinfo or introspection
// endpoint, not to its target.
func TestAUTH14ToldApart(t *testing.T) {
	w := get(t)
	validators := map[string]*v1.AuthConfig{
		"jwt": byJWT(w.idp), "token": byOIDC(w.idp, fromToken), "userinfo": byOIDC(w.idp), "introspecting": byOIDC(w.idp, introspecting),
	}
	configs := maps.Clone(validators)
	for name, auth := range validators {
		configs[name+"-exchanging"] = exchanging(auth, w.idp)
	}
	px := startProxy(t, "", w.recorders(configs), nil)
	for name := range configs {
		t.Run(name, func(t *testing.T) {
			inner, exchanges := strings.CutSuffix(name, "-exchanging")
			asksUserinfo := inner == "userinfo" || inner == "introspecting"
			for _, b := range w.bearers(t) {
				who, want := b.plain, calls{}
				switch {
				case exchanges:
					who = b.exchanged
					want.Token = count(b.opaque)
				case inner == "introspecting":
					who = b.introspected
					want.Introspection = count(b.introspectable)
				}
				want.Upstream = count(who != "")
				want.Userinfo = count(who != "" && asksUserinfo)
				for _, f := range recorded {
					before, beside := w.count(w.idp, f), w.kanidm.AllCalls()
					a := ask(t, px, "h2", name+f.suffix, "/api/v1/nodes", b.token)
					if who == "" {
						a.refused(t, http.StatusUnauthorized, "")
					} else if a.Code != http.StatusOK {
						t.Errorf("%s%s: %d %s", b.name, f.suffix, a.Code, a.Body)
					} else if all := w.records[f.mode].Requests(); f.mode == v1.ModeFrontProxy && all[len(all)-1].Identity.User != prefix+who {
						t.Errorf("%s: arrived as %v", b.name, all[len(all)-1].Identity)
					}
					if diff := cmp.Diff(want, w.count(w.idp, f).since(before)); diff != "" {
						t.Errorf("%s%s: calls (-want +got):\n%s", b.name, f.suffix, diff)
					}
					if diff := cmp.Diff(beside, w.kanidm.AllCalls()); diff != "" {
						t.Errorf("%s%s: calls of another provider (-before +after):\n%s", b.name, f.suffix, diff)
					}
				}
			}
		})
	}
}

func count(asked bool) int {
	if asked {
		return 1
	}
	return 0
}

// AUTH-14: the author of a cluster has a token endpoint of their own beside a
// provider that others use too. No user's token reaches it.
func TestAUTH14TokenEndpointOfTheAuthor(t *testing.T) {
	w := get(t)
	px := startProxy(t, "", w.recorders(map[string]*v1.AuthConfig{"author": exchanging(byJWT(w.idp), w.kanidm)}), nil)
	before := w.kanidm.Calls(oidc.Token)
	shown := 0
	for _, b := range w.bearers(t) {
		ask(t, px, "h1", "author"+recPassthrough.suffix, "/api", b.token)
		shown += count(b.opaque)
		if got := w.kanidm.Calls(oidc.Token) - before; got != shown {
			t.Fatalf("%s: %d tokens were shown to the author's endpoint, want %d", b.name, got, shown)
		}
	}
}

// AUTH-14 with the validator Kubernetes, which does not know its issuers: every
// JWT with one goes to the apiserver and never to the token endpoint; what an
// opaque bearer is exchanged for goes to the apiserver in its place, in the review
// and in the request itself: its audit log names both.
func TestAUTH14Kubernetes(t *testing.T) {
	w := get(t)
	auth := &v1.AuthConfig{ValidateAgainst: v1.ValidateKubernetes}
	px := startProxy(t, "", map[string]string{
		"plain.yaml":      w.manifest("plain", apiPassthrough, auth),
		"exchanging.yaml": w.manifest("exchanging", apiPassthrough, exchanging(auth, w.idp)),
	}, nil)
	whoami := func(cluster, token, agent string) *kube.Review {
		client := px.Client("h2")
		defer client.CloseIdleConnections()
		header := kube.Bearer(token)
		header.Set("User-Agent", agent)
		return kube.MustWhoAmI(t, client, px.ClusterURL(ns, cluster), header)
	}
	for _, tt := range []struct {
		name, token      string
		plain, exchanged string // who the apiserver saw; empty is 401
		opaque           bool
	}{
		{"a human's", w.idp.Token(oidc.Alice, nil), ownPrefix + "subject-alice", ownPrefix + "subject-alice", false},
		{"another issuer of the apiserver's", w.kanidm.Token(oidc.Alice, nil), ownPrefix + "kanidm:subject-alice", ownPrefix + "kanidm:subject-alice", false},
		{"for another cluster", w.idp.Token(oidc.Alice, map[string]any{"aud": otherID}), "", "", false},
		{"expired", w.idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}), "", "", false},
		{"an unknown issuer", w.idp.Token(oidc.Alice, map[string]any{"iss": "https://nobody.example.test"}), "", "", false},
		{"a machine's opaque token", w.idp.APIToken(oidc.Robot), "", ownPrefix + "subject-robot", true},
		{"a machine's JWS", w.idp.APITokenJWS(oidc.Robot), "", ownPrefix + "subject-robot", true},
		{"a stranger's opaque token", w.kanidm.APIToken(oidc.Robot), "", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for cluster, want := range map[string]string{"plain": tt.plain, "exchanging": tt.exchanged} {
				before := w.idp.Calls(oidc.Token)
				agent := "kubernetes " + cluster + " " + tt.name
				reviewed := w.seen(t, "proxyauth-review", want)
				r := whoami(cluster, tt.token, agent)
				if want == "" && r.Code != http.StatusUnauthorized || want != "" && (r.Code != http.StatusCreated || r.User.Username != want) {
					t.Errorf("%s: %d as %q %s, want %q", cluster, r.Code, r.User.Username, r.Status.Message, want)
				}
				if got := w.idp.Calls(oidc.Token) - before; got != count(tt.opaque && cluster == "exchanging") {
					t.Errorf("%s: shown to the token endpoint %d times", cluster, got)
				}
				if want == "" {
					if n := w.seen(t, agent, ""); n != 0 {
						t.Errorf("%s: %d requests with a refused token were relayed", cluster, n)
					}
					continue
				}
				events := w.own.MustAudit(t, func(e *auditv1.Event) bool { return e.UserAgent == agent })
				if got := events[0].User.Username; got != want || events[0].ResponseStatus.Code != http.StatusCreated {
					t.Errorf("%s: the audit log names %q for the request, want %q", cluster, got, want)
				}
				// An event is written just after its answer.
				for end := time.Now().Add(30 * time.Second); w.seen(t, "proxyauth-review", want) != reviewed+1; time.Sleep(20 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%s: the audit log names %q in %d reviews", cluster, want, w.seen(t, "proxyauth-review", want)-reviewed)
					}
				}
			}
		})
	}
}

// seen counts the requests of a client and a user, or of any, that the apiserver
// in Passthrough has answered.
func (w *world) seen(t *testing.T, agent, user string) (n int) {
	t.Helper()
	events, err := w.own.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Stage == auditv1.StageResponseComplete && e.UserAgent == agent && (user == "" || e.User.Username == user) {
			n++
		}
	}
	return n
}

// secretPart is a token without the header of a JWS, which holds no secret and
// is alike in many tokens.
func secretPart(token string) string {
	if header, rest, ok := strings.Cut(token, "."); ok && strings.HasPrefix(header, "eyJ") {
		return rest
	}
	return token
}
