package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// FWD-01, ID-3: one line per group, never joined or split.
func TestFWD01GroupLines(t *testing.T) {
	const dn = "CN=ops,OU=eu,DC=example,DC=test"
	groups := []string{"dev", dn, "équipe", "two words", `a"b\c;d`, "%2c", "a:b", "{}"}
	bearer := token(map[string]any{"groups": groups, "scopes": []string{"a,b", "c"}})
	for _, cluster := range []string{fpH2, fpH1} {
		bothProtocols(t, func(t *testing.T, protocol string) {
			w := way{px: shared.px, protocol: protocol, cluster: cluster, up: shared.ups[cluster]}
			r := w.relayed(t, call{path: "/api"}.bearer(bearer))
			want := []string{}
			for _, g := range groups {
				want = append(want, prefix+g)
			}
			if diff := cmp.Diff(want, r.Lines("X-Remote-Group")); diff != "" {
				t.Errorf("group lines (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(groups, r.Identity.Unprefixed(prefix).Groups); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			if got := r.Lines("X-Remote-Extra-Example.test%2fscopes"); !slices.Equal(got, []string{"a,b", "c"}) {
				t.Errorf("extra lines %q", got)
			}
			if cluster == fpH1 {
				raw := string(r.Raw())
				if strings.Count(raw, "\r\nX-Remote-Group: ") != len(groups) || !strings.Contains(raw, "\r\nX-Remote-Group: t:"+dn+"\r\n") {
					t.Errorf("raw bytes:\n%s", raw)
				}
			}
			if want := map[string]string{fpH2: "h2", fpH1: "http/1.1"}[cluster]; r.Protocol != want {
				t.Errorf("went over %q, want %q", r.Protocol, want)
			}
		})
	}
	t.Run("on an upgrade", func(t *testing.T) {
		up := shared.ups[fpH2]
		up.Reset()
		up.Handle(rawserver.Echo)
		defer up.Handle(nil)
		c := call{cluster: fpH2, path: "/exec"}.bearer(bearer).with("Connection: Upgrade", "Upgrade: SPDY/3.1")
		if a := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool()).Do(t, c.h1(shared.px)); a.Code != http.StatusSwitchingProtocols {
			t.Fatalf("code %d", a.Code)
		}
		if diff := cmp.Diff(groups, up.Only(t).Identity.Unprefixed(prefix).Groups); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
	})
}

// marker is in every value that the proxy must not repeat anywhere.
const marker = "m4rk3d"

// refusedIdentity is a token's identity that is not forwarded (ID-2).
type refusedIdentity struct {
	claims map[string]any
	reason string
	kind   string
	// passthrough says that it is refused in Passthrough too.
	passthrough bool
}

func many(n int, f func(i int) string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = f(i)
	}
	return list
}

// refusedIdentities cover ID-2 but for system_prefix, which needs other
// prefixes (TOK-10).
func refusedIdentities() map[string]refusedIdentity {
	all := map[string]refusedIdentity{
		"name null":  {map[string]any{"preferred_username": json.RawMessage("null")}, "empty_username", "the user name", true},
		"name empty": {map[string]any{"preferred_username": ""}, "empty_username", "the user name", true},
		"name blank": {map[string]any{"preferred_username": " \t\u00a0"}, "empty_username", "the user name", true},

		"FWD-04: a header line in the name":  {map[string]any{"preferred_username": marker + "\r\nX-Remote-Group: system:masters"}, "untransmittable", "the user name", false},
		"FWD-04: NUL in a group":             {map[string]any{"groups": []string{"dev", marker + "\u0000y"}}, "untransmittable", "a group", false},
		"FWD-04: DEL in a group":             {map[string]any{"groups": []string{marker + "\u007f"}}, "untransmittable", "a group", false},
		"FWD-04: a line feed in an extra":    {map[string]any{"scopes": []string{"read", marker + "\n"}}, "untransmittable", "an extra value", false},
		"a header line in an extra":          {map[string]any{"scopes": marker + "\r\nX-Remote-User: root"}, "untransmittable", "an extra value", false},
		"an empty group":                     {map[string]any{"groups": []string{"", marker}}, "untransmittable", "a group", false},
		"65 groups":                          {map[string]any{"groups": many(65, func(i int) string { return fmt.Sprint(marker, i) })}, "too_large", "the groups", false},
		"one byte too many":                  {map[string]any{"groups": []string{strings.Repeat("g", 8192-len("t:alice")-len("t:")+1-len(marker)) + marker}, "scopes": nil}, "too_large", "the whole identity", false},
		"a huge name":                        {map[string]any{"preferred_username": strings.Repeat(marker, 2000)}, "too_large", "the whole identity", false},
		"a huge extra":                       {map[string]any{"scopes": strings.Repeat(marker, 2000)}, "too_large", "the whole identity", false},
		"an overage of the mapped groups":    {map[string]any{"groups": nil, "_claim_names": map[string]string{"groups": "src1"}, "_claim_sources": map[string]any{"src1": map[string]string{"endpoint": shared.idp.ElsewhereURL()}}}, "too_large", "the groups", false},
		"an overage beside groups":           {map[string]any{"_claim_names": map[string]string{"groups": "src1"}}, "too_large", "the groups", false},
		"reserved and too large: the first":  {map[string]any{"preferred_username": "\n", "groups": many(65, func(i int) string { return fmt.Sprint(marker, i) })}, "empty_username", "the user name", true},
		"control character before the limit": {map[string]any{"groups": append(many(65, func(i int) string { return fmt.Sprint(marker, i) }), "x\x01")}, "untransmittable", "a group", false},
	}
	for _, space := range []string{" ", "\t", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u0085"} {
		all[fmt.Sprintf("name ends with %+q", space)] = refusedIdentity{map[string]any{"preferred_username": marker + space}, "untransmittable", "the user name", false}
		all[fmt.Sprintf("name begins with %+q", space)] = refusedIdentity{map[string]any{"preferred_username": space + marker}, "untransmittable", "the user name", false}
		all[fmt.Sprintf("group begins with %+q", space)] = refusedIdentity{map[string]any{"groups": []string{"dev", space + marker}}, "untransmittable", "a group", false}
		all[fmt.Sprintf("extra ends with %+q", space)] = refusedIdentity{map[string]any{"scopes": marker + space}, "untransmittable", "an extra value", false}
	}
	for _, control := range []string{"\x00", "\x01", "\b", "\t", "\n", "\v", "\f", "\r", "\x1b", "\x1f", "\x7f", "\u0080", "\u0085", "\u009f"} {
		all[fmt.Sprintf("%q in the name", control)] = refusedIdentity{map[string]any{"preferred_username": marker + control + "x"}, "untransmittable", "the user name", false}
		all[fmt.Sprintf("%q in a group", control)] = refusedIdentity{map[string]any{"groups": marker + control + "x"}, "untransmittable", "a group", false}
		all[fmt.Sprintf("%q in an extra", control)] = refusedIdentity{map[string]any{"scopes": marker + control + "x"}, "untransmittable", "an extra value", false}
	}
	return all
}

var refusalTexts = map[string]string{
	"system_prefix":   "has a reserved system: name or group",
	"empty_username":  "has no username for the configured claim",
	"untransmittable": "has a value it cannot forward",
	"too_large":       "is too large to forward",
}

// FWD-04, ID-2: each reason is a 403 before any upstream byte, counted and
// audited once; the message names the kind of value, and the value itself is
// nowhere.
func TestFWD04RefusedIdentities(t *testing.T) {
	for name, tc := range refusedIdentities() {
		t.Run(name, func(t *testing.T) {
			bearer := shared.idp.Token(oidc.Alice, tc.claims)
			for _, cluster := range []string{fpH2, ptH2} {
				if cluster == ptH2 && !tc.passthrough {
					continue
				}
				bothProtocols(t, func(t *testing.T, protocol string) {
					w := way{px: shared.px, protocol: protocol, cluster: cluster, up: shared.ups[cluster]}
					series := fmt.Sprintf("proxyauth_upstream_identity_refused_total{reason=%q}", tc.reason)
					before := shared.px.MustCounter(t, series)
					path := fmt.Sprintf("/api/%x-%s-%s", name, cluster, protocol)
					a := w.do(t, call{path: path}.bearer(bearer))
					wantStatus(t, a, http.StatusForbidden, refusalTexts[tc.reason])
					w.up.None(t)
					if !strings.Contains(a.Body, tc.kind) {
						t.Errorf("the message does not name %s: %s", tc.kind, a.Body)
					}
					if got := shared.px.MustCounter(t, series) - before; got != 1 {
						t.Errorf("%s: counted %d times", series, got)
					}
					e := audited(t, shared.px, path)
					if e.Text("reason") != "upstream_identity_refused" || !strings.Contains(e.Text("message"), refusalTexts[tc.reason]) || e["response_status"] != 403.0 {
						t.Errorf("audit line %v", e)
					}
					if strings.Contains(a.Body+fmt.Sprint(a.Header), marker) {
						t.Errorf("the value is in the answer: %v %s", a.Header, a.Body)
					}
				})
			}
			if tc.passthrough {
				return
			}
			// Passthrough forwards no identity: there is nothing to refuse.
			w := way{px: shared.px, protocol: h1, cluster: ptH2, up: shared.ups[ptH2]}
			if w.do(t, call{path: "/api"}.bearer(bearer)); len(w.up.Requests()) != 1 {
				t.Error("refused in Passthrough")
			}
		})
	}
	if shared.idp.Calls(oidc.Elsewhere) != 0 {
		t.Error("a URL of a token was fetched")
	}
}

// ID-2: in FrontProxy, where such values are refused, no log line at any level
// holds them.
func TestFWD04NoValueInAnyLog(t *testing.T) {
	px := startProxy(t, proxy.Options{}, nil)
	for _, tc := range refusedIdentities() {
		bearer := shared.idp.Token(oidc.Alice, tc.claims)
		do(t, px, h1, call{cluster: fpH2, path: "/api"}.bearer(bearer))
		do(t, px, h2, call{cluster: fpH2, path: "/api"}.bearer(bearer))
		do(t, px, h1, call{cluster: fpH2, path: "/exec"}.bearer(bearer).with("Connection: Upgrade", "Upgrade: SPDY/3.1"))
	}
	px.MustAudit(t, func(e proxy.Entry) bool { return e.Text("path") == "/exec" })
	if text := px.Everything() + px.MustMetrics(t); strings.Contains(text, marker) {
		t.Error("a refused value is in the log or the metrics")
	}
}

// FWD-04: what looks odd and is none of that arrives unchanged, up to the very
// limits.
func TestFWD04Forwarded(t *testing.T) {
	for name, changes := range map[string]map[string]any{
		"inner white space":   {"preferred_username": "al ice\u00a0x", "groups": []string{"a b", "a\u3000b"}},
		"quotes and the like": {"preferred_username": `"alice", <a>;=%0d%0a\r\n`, "groups": []string{"%0aX-Remote-User: root", "a: b"}},
		"UTF-8":               {"preferred_username": "élodie🦊", "groups": []string{"équipe", "日本", "\u200b", "\ufeff", "e\u0301"}},
		"64 groups":           {"groups": many(64, func(i int) string { return fmt.Sprint("g", i) })},
		"8192 bytes":          {"groups": []string{strings.Repeat("g", 8192-len("t:alice")-len("t:"))}, "scopes": nil},
		"a comma":             {"preferred_username": "CN=alice,OU=eu"},
		"a foreign overage":   {"_claim_names": map[string]string{"address": "src1"}},
	} {
		t.Run(name, func(t *testing.T) {
			claims := shared.idp.Claims(oidc.Alice, changes)
			bearer := shared.idp.Mint(claims, oidc.Sign{})
			for _, cluster := range []string{fpH2, fpH1} {
				bothProtocols(t, func(t *testing.T, protocol string) {
					w := way{px: shared.px, protocol: protocol, cluster: cluster, up: shared.ups[cluster]}
					got := w.relayed(t, call{path: "/api"}.bearer(bearer)).Identity.Unprefixed(prefix)
					want := &rawserver.Identity{User: claims["preferred_username"].(string), Groups: claims["groups"].([]string), Extra: map[string][]string{}}
					if claims["scopes"] != nil {
						want.Extra[extraKey] = []string{"read", "write"}
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("identity (-want +got):\n%s", diff)
					}
				})
			}
		})
	}
}

// ID-1, ID-2, ID-3: forward_uid sends the uid, under the same rules; without
// it none is sent.
func TestFWD04ForwardUID(t *testing.T) {
	up := rawserver.Start(t, rawserver.Options{})
	uid := "uid"
	a := proxy.Authenticator(shared.idp)
	a.ClaimMappings.UID = &v1.ClaimOrExpression{Claim: &uid}
	clusters := map[string]string{
		"with.yaml":    frontProxyWith("with", up, up.FrontProxy(1), a, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.ForwardUID = true }),
		"without.yaml": frontProxyWith("without", up, up.FrontProxy(1), a, nil),
	}
	px := proxy.Start(t, proxy.Options{Manifests: clusters})
	px.MustServe(t, ns, "with")
	px.MustServe(t, ns, "without")
	bothProtocols(t, func(t *testing.T, protocol string) {
		with := way{px: px, protocol: protocol, cluster: "with", up: up}
		without := way{px: px, protocol: protocol, cluster: "without", up: up}
		good := call{path: "/api"}.bearer(token(map[string]any{"uid": "u-1"})).with("X-Remote-Uid: root")
		if r := with.relayed(t, good); r.Identity.UID != "u-1" || !slices.Equal(r.Lines("X-Remote-Uid"), []string{"u-1"}) {
			t.Errorf("%+v", r.Identity)
		}
		if r := without.relayed(t, good); r.Identity.UID != "" || len(r.Lines("X-Remote-Uid")) > 0 {
			t.Errorf("%+v", r.Identity)
		}
		bad := call{path: "/api"}.bearer(token(map[string]any{"uid": marker + "\r\nX-Remote-User: root"}))
		with.refused(t, bad, http.StatusForbidden, "the uid")
		without.relayed(t, bad)
		with.refused(t, call{path: "/api"}.bearer(token(map[string]any{"uid": strings.Repeat("u", 8192)})), http.StatusForbidden, "is too large to forward")
	})
	if strings.Contains(px.Everything(), marker) {
		t.Error("a refused value is in the log")
	}
}
