package users

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/leakcheck"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// leaks is the test of OBS-01 under way.
type leaks struct {
	w      *world
	px     *proxy.Proxy
	pieces leakcheck.Pieces
	codes  map[int]int
}

// OBS-01, SIG-3: at level DEBUG no 16-character piece of a credential, of any
// validator and of token exchange, in any log, metric, answer, status or answer
// of the admin API, nor, in FrontProxy, in a byte that the apiserver gets. What
// providers answer is part of that: some echo what they were asked.
func TestOBS01NoCredentialAnywhere(t *testing.T) {
	w := get(t)
	configs := map[string]*v1.AuthConfig{}
	for _, y := range ways() {
		configs[y.cluster()] = y.auth(w)
	}
	clusters := w.recorders(configs)
	configs[asking] = exchanging(&v1.AuthConfig{ValidateAgainst: v1.ValidateKubernetes}, w.idp)
	clusters[asking+".yaml"] = w.manifest(asking, apiPassthrough, configs[asking])
	broken := configData(w.idp)
	broken["certificate_authority"] = "no PEM"
	px := proxy.Start(t, proxy.Options{Site: proxy.ExampleAccessLog, Manifests: with(clusters, map[string]string{
		"config.yaml":        proxy.Manifests(proxy.Secret(ns, configSecret, configData(w.idp))),
		"broken-secret.yaml": proxy.Manifests(proxy.Secret(ns, "broken", broken)),
		"broken.yaml": w.manifest("broken", recPassthrough, byOIDC(w.idp, introspecting, func(o *v1.OidcProvider) {
			o.ConfigFrom = &v1.ConfigReference{Secret: &v1.SecretReference{Name: "broken"}}
		})),
	})})
	if err := serving(t.Context(), px, len(clusters)); err != nil {
		t.Fatal(err)
	}
	s := &leaks{w: w, px: px, pieces: leakcheck.Pieces{}, codes: map[int]int{}}
	for name, secret := range map[string]string{"the secret of basic": basicSecret, "the secret of post": postSecret, "the secret of introspection": oidc.ClientSecret} {
		s.pieces.AddBearer(name, secret)
		s.pieces.AddBearer(name+", encoded", url.QueryEscape(secret))
	}
	for id, secret := range map[string]string{basicID: basicSecret, oidc.SecretClientID: oidc.ClientSecret} {
		s.pieces.AddBearer("Basic of "+id, base64.StdEncoding.EncodeToString([]byte(id+":"+url.QueryEscape(secret))))
	}
	for _, up := range w.records {
		up.Reset()
	}
	for cluster, auth := range configs {
		s.run(t, cluster)
		if auth.TokenExchange != nil {
			s.exchange(t, cluster)
		}
	}
	s.faults(t)
	s.upstream(t)
	s.written(t)
	for _, code := range []int{200, 401, 403, 503} {
		if s.codes[code] == 0 {
			t.Errorf("no answer was a %d: %v", code, s.codes)
		}
	}
	t.Logf("answers %v, %d pieces", s.codes, len(s.pieces))
}

// asking is the cluster whose apiserver is asked who a caller is, by their bearer
// or by what it was exchanged for. A recorder could not tell.
const asking = "asking"

func fronts(cluster string) []front {
	if cluster == asking {
		return []front{apiPassthrough}
	}
	return recorded
}

func with(sets ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range sets {
		maps.Copy(all, m)
	}
	return all
}

// provider is that of a cluster.
func (s *leaks) provider(cluster string) *oidc.Provider {
	if strings.HasPrefix(cluster, "kanidm") {
		return s.w.kanidm
	}
	return s.w.idp
}

// exchange sends API tokens that are exchanged for tokens of the test's own,
// and so known where they must not go.
func (s *leaks) exchange(t *testing.T, cluster string) {
	t.Helper()
	p, access := s.provider(cluster), oidc.ClientID
	if cluster == "opaque-access" {
		access = oidc.OpaqueClientID
	}
	defer p.Repair()
	for _, f := range fronts(cluster) {
		tokens := map[string]any{"id_token": p.Token(oidc.Alice, nil), "access_token": p.MustLogin(t, oidc.Alice, access).AccessToken}
		p.SetFault(oidc.Token, oidc.With(tokens))
		bearer := p.APIToken(oidc.Robot)
		s.pieces.AddBearer("an API token at "+cluster, bearer)
		for name, token := range tokens {
			s.pieces.AddBearer("the exchanged "+name+" at "+cluster, token.(string))
		}
		if code := s.send(t, cluster+f.suffix, kube.Bearer(bearer)); code != http.StatusOK {
			t.Errorf("%s: %d for an API token", cluster+f.suffix, code)
		}
	}
}

// run sends every kind of credential to both clusters of a configuration.
func (s *leaks) run(t *testing.T, cluster string) {
	t.Helper()
	p := s.provider(cluster)
	expired := time.Now().Add(-time.Minute).Unix()
	large := strings.Repeat("abcdefghijklmnopqrstuvwxyz012345", 20<<10/32)
	bearers := map[string]string{
		"valid": p.Token(oidc.Alice, nil), "expired": p.Token(oidc.Alice, map[string]any{"exp": expired}),
		"another audience": p.Token(oidc.Alice, map[string]any{"aud": otherID}),
		"changed":          oidc.FlipSignatureBit(p.Token(oidc.Alice, nil)),
		"malformed":        "eyJhbGciOiJSUzI1NiJ9.this-is-not-base64url!!!-at-all.and-neither-is-this",
		"large":            p.Token(oidc.Alice, map[string]any{"padding": large}),
		"large and opaque": strings.Repeat("0123456789abcdefABCDEF-_.", 20<<10/25),
		"opaque":           p.MustLogin(t, oidc.Alice, oidc.OpaqueClientID).AccessToken,
		"unknown":          "nobodys-token-" + cluster + "-0123456789",
		"API token":        p.APIToken(oidc.Robot), "API token, JWS": p.APITokenJWS(oidc.Robot),
		"refused identity": p.Token(oidc.Alice, map[string]any{"groups": "a\x01b"}),
	}
	basic := base64.StdEncoding.EncodeToString([]byte("alice:correct-horse-battery-staple"))
	s.pieces.AddBearer("Basic", basic)
	for name, bearer := range bearers {
		s.pieces.AddBearer(name+" at "+cluster, bearer)
		for _, f := range fronts(cluster) {
			s.send(t, cluster+f.suffix, kube.Bearer(bearer))
			s.send(t, cluster+f.suffix, http.Header{"authorization": {"bearer " + bearer}})
			s.send(t, cluster+f.suffix, http.Header{
				"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
				"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(bearer)) + ", v5.channel.k8s.io"},
			})
		}
	}
	for _, f := range fronts(cluster) {
		s.send(t, cluster+f.suffix, http.Header{"Authorization": {"Basic " + basic}})
		// A name that cannot be forwarded, given by userinfo as well.
		p.SetFault(oidc.Userinfo, oidc.With(map[string]any{"groups": "a\x01b"}))
		token := p.Token(oidc.Alice, nil)
		s.pieces.AddBearer("refused at userinfo of "+cluster, token)
		s.send(t, cluster+f.suffix, kube.Bearer(token))
		p.Repair()
	}
}

// faults has the providers answer in words of theirs that repeat what they
// were asked.
func (s *leaks) faults(t *testing.T) {
	t.Helper()
	for _, echo := range []func(token string) oidc.Fault{
		func(token string) oidc.Fault {
			return oidc.JSON(400, `{"error":"invalid_grant","error_description":"`+token+`"}`)
		},
		func(token string) oidc.Fault { return oidc.JSON(400, `{"error":"`+token+`"}`) },
		func(token string) oidc.Fault { return oidc.JSON(500, token) },
		func(token string) oidc.Fault {
			return oidc.JSON(200, `{"access_token":"`+token+`","token_type":"`+token+`","sub":"`+token+`","active":"`+token+`"}`)
		},
		func(token string) oidc.Fault { return oidc.JSON(200, token) },
		func(token string) oidc.Fault { return oidc.Redirect("https://127.0.0.1:1/" + token) },
		func(token string) oidc.Fault {
			return oidc.Fault{Status: 200, ContentType: token, Body: []byte("{}")}
		},
	} {
		for name, bearer := range map[string]string{
			"basic": s.w.idp.APIToken(oidc.Robot), "post": s.w.idp.APITokenJWS(oidc.Robot), "basic-access": s.w.idp.APIToken(oidc.Robot),
			"userinfo": s.w.idp.Token(oidc.Alice, nil), "opaque": s.w.idp.MustLogin(t, oidc.Alice, oidc.OpaqueClientID).AccessToken,
		} {
			s.pieces.AddBearer("echoed at "+name, bearer)
			for _, e := range []oidc.Endpoint{oidc.Token, oidc.Userinfo, oidc.Introspection} {
				s.w.idp.SetFault(e, echo(bearer))
			}
			for _, f := range recorded {
				s.send(t, name+f.suffix, kube.Bearer(bearer))
			}
			s.w.idp.Repair()
		}
	}
}

// send looks at the answer, and returns its code.
func (s *leaks) send(t *testing.T, cluster string, header http.Header) int {
	t.Helper()
	a := send(t, s.px, "h1", cluster, "/api", header)
	s.codes[a.Code]++
	s.pieces.Absent(t, fmt.Sprintf("the answer of %s, %d", cluster, a.Code), fmt.Sprint(a.Header)+a.Body)
	return a.Code
}

// upstream looks at what the recorders got. In Passthrough a token goes on as
// Authorization: what machines' tokens were exchanged for is looked for in
// everything else from here on.
func (s *leaks) upstream(t *testing.T) {
	t.Helper()
	exchanged := 0
	for _, r := range s.w.records[v1.ModePassthrough].Requests() {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !s.pieces.Has(token[len(token)-leakcheck.PieceLength:]) {
			s.pieces.AddBearer("an exchanged token", secretPart(token))
			exchanged++
		}
		if text := r.Text(); strings.Count(text, token) == 1 {
			s.pieces.Absent(t, "the upstream in Passthrough, beside its Authorization", strings.Replace(text, token, "", 1))
		} else {
			t.Errorf("the token is in %s %d times", r, strings.Count(text, token))
		}
	}
	if exchanged == 0 {
		t.Error("no exchanged token was seen")
	}
	requests := s.w.records[v1.ModeFrontProxy].AllRequests()
	if len(requests) == 0 {
		t.Error("nothing was relayed in FrontProxy")
	}
	for _, r := range requests {
		s.pieces.Absent(t, "the upstream in FrontProxy", r.Text())
	}
}

// written looks at all that the proxy has written or tells.
func (s *leaks) written(t *testing.T) {
	t.Helper()
	texts := map[string]string{"the log": s.px.Everything(), "the metrics": s.px.MustMetrics(t)}
	for _, path := range []string{"/proxyauth/clusters", "/config/", "/metrics", "/debug/vars"} {
		code, body, err := s.px.AdminDo(t.Context(), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		texts[fmt.Sprintf("the admin API's %s, %d", path, code)] = body
	}
	status, err := s.px.Command(t.Context(), "proxyauth", "status", "--address", s.px.Admin, "-o", "json")
	if err != nil || status.ExitCode != 0 {
		t.Fatalf("%+v, %v", status, err)
	}
	texts["caddy proxyauth status"] = status.Stdout + status.Stderr
	files, err := s.px.Files()
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range files {
		if filepath.Dir(file) != s.px.Directory { // the manifests have to hold secrets
			texts[file] = string(content)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s.pieces.Absent(t, name, texts[name])
	}
	log := texts["the log"]
	for _, part := range []string{"upstream roundtrip", `"logger":"proxyauth.audit"`, `"level":"debug"`} {
		if !strings.Contains(log, part) {
			t.Errorf("the log holds no %s: there was nothing to find anything in", part)
		}
	}
	if !s.pieces.Has(basicSecret[1 : 1+leakcheck.PieceLength]) {
		t.Error("a piece of a secret would not be found")
	}
	if !strings.Contains(status.Stdout, "InvalidSpec") && !strings.Contains(status.Stdout, "ReferenceNotFound") {
		t.Error("the status does not tell of the broken Secret")
	}
}
