package hostile

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// RELAY-4: a redirect leads to the same cluster's URL or nowhere: clients repeat
// a request there, with its body, and with the bearer on the same host.
func TestRELAY4Redirects(t *testing.T) {
	everyWay(t, shared.px, func(t *testing.T, w way) {
		defer w.up.Handle(nil)
		own := "/clusters/" + ns + "/" + w.cluster
		for location, want := range map[string]string{
			"/openapi/v3/apis/apps/v1?hash=0A": own + "/openapi/v3/apis/apps/v1?hash=0A",
			"?hash=0A":                         own + "/api/v1/things?hash=0A",
			"other/":                           own + "/api/v1/other/",
			w.up.URL + "/api":                  own + "/api",
			own + "/api":                       own + "/api",

			"http://127.0.0.1:1/x":           "",
			"https://attacker.test/x":        "",
			"//attacker.test/x":              "",
			`/\attacker.test/x`:              "",
			`\\attacker.test\x`:              "",
			"/clusters/" + ns + "/other/api": "",
			"/api/../../other/api":           "",
			"/api/%2e%2e/%2e%2e/other/api":   "",
			"../../../other/api":             "",
			"javascript:alert(1)":            "",
		} {
			for _, code := range []int{201, 301, 302, 303, 307, 308} {
				w.up.Handle(func(rw *rawserver.Writer, r *rawserver.Request) {
					_, _ = io.Copy(io.Discard, r)
					rw.Respond(code, []byte("moved"), rawserver.Field{Name: "Location", Value: location})
				})
				a := w.do(t, call{method: "POST", path: "/api/v1/things", body: []byte("{}")}.asAlice())
				if want == "" {
					wantStatus(t, a, http.StatusBadGateway, "redirects to another place")
					if a.Header.Get("Location") != "" {
						t.Errorf("%d %s: Location %q", code, location, a.Header.Get("Location"))
					}
					continue
				}
				if a.Code != code || a.Header.Get("Location") != want {
					t.Errorf("%d %s: %d, Location %q, want %q", code, location, a.Code, a.Header.Get("Location"), want)
				}
			}
		}
		// An upgrade that is answered with a redirect, and Refresh.
		w.up.Handle(rawserver.Redirect(307, "https://attacker.test/exec"))
		if w.protocol == h1 {
			c := rawclient.MustDial(t, w.px.Host, w.px.CA.Pool())
			wantStatus(t, c.Do(t, call{cluster: w.cluster, path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: websocket").h1(w.px)),
				http.StatusBadGateway, "redirects to another place")
			w.up.Handle(rawserver.Redirect(307, "/exec"))
			if a := upgradeTo(t, w.px, call{cluster: w.cluster, path: execPath}.asAlice(), "websocket"); a.Code != 307 || a.Header.Get("Location") != own+"/exec" {
				t.Errorf("an upgrade that is redirected: %d %q", a.Code, a.Header.Get("Location"))
			}
		}
		w.up.Handle(rawserver.Answer(200, "text/html", nil, rawserver.Field{Name: "Refresh", Value: "0;url=https://attacker.test"}))
		wantStatus(t, w.do(t, call{path: "/api"}.asAlice()), http.StatusBadGateway, "redirects to another place")
	})
}

// RELAY-4: what is no final status is a 502 that is audited and counted, and
// leaves no stream behind.
func TestRELAY4InvalidStatus(t *testing.T) {
	bothProtocols(t, func(t *testing.T, protocol string) {
		for _, cluster := range []string{fpH1, ptH1} {
			up := shared.ups[cluster]
			defer up.Handle(nil)
			for i, line := range []string{"000 Nothing", "042 Answer", "+12 Plus", "099 Low", "600 High", "999 Higher", "1000 Long", "-12 Minus"} {
				path := fmt.Sprintf("/api/invalid-status-%s-%s-%d", protocol, cluster, i)
				up.Handle(rawserver.Raw("HTTP/1.1 " + line + "\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"))
				a := do(t, shared.px, protocol, call{cluster: cluster, path: path}.asAlice())
				if a.Code != http.StatusBadGateway {
					t.Errorf("%s: %d %q", line, a.Code, a.Body)
				}
				wantStatus(t, a, http.StatusBadGateway, "")
				if e := audited(t, shared.px, path); fmt.Sprint(e["response_status"]) != "502" {
					t.Errorf("%s: audit line %v", line, e)
				}
				if protocol == h1 {
					path += "-upgrade"
					wantStatus(t, upgradeTo(t, shared.px, call{cluster: cluster, path: path}.asAlice(), "websocket"), http.StatusBadGateway, "")
					if e := audited(t, shared.px, path); fmt.Sprint(e["response_status"]) != "502" {
						t.Errorf("%s in answer to an upgrade: audit line %v", line, e)
					}
				}
			}
		}
	})
}

// ID-5: what acts on the whole origin goes, and the path form is sandboxed.
func TestID5OriginHeaders(t *testing.T) {
	everyWay(t, shared.px, func(t *testing.T, w way) {
		defer w.up.Handle(nil)
		names := []string{
			"Strict-Transport-Security", "Clear-Site-Data", "NEL", "Report-To", "Reporting-Endpoints",
			"Service-Worker-Allowed", "Alt-Svc", "Set-Cookie", "Set-Cookie2",
		}
		fields := []rawserver.Field{{Name: "Content-Security-Policy", Value: "default-src 'none'"}, {Name: "Etag", Value: `"x"`}}
		for _, name := range names {
			fields = append(fields, rawserver.Field{Name: name, Value: "from-upstream=1"})
		}
		w.up.Handle(rawserver.Answer(200, "text/html", []byte("page"), fields...))
		a := w.do(t, call{path: "/api/v1/namespaces/a/services/b/proxy/"}.asAlice())
		for _, name := range names {
			// Caddy says of itself that it serves HTTP/3.
			if strings.Contains(strings.Join(a.Header.Values(name), " "), "from-upstream") {
				t.Errorf("%s: %q", name, a.Header.Values(name))
			}
		}
		policies := strings.Join(a.Header.Values("Content-Security-Policy"), "\n")
		if policies != "default-src 'none'\nsandbox" || a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Etag") == "" {
			t.Errorf("headers %v", a.Header)
		}
		refused := w.do(t, call{path: "/api"})
		if refused.Code != 401 || refused.Header.Get("Content-Security-Policy") != "sandbox" {
			t.Errorf("a refusal: %d %v", refused.Code, refused.Header)
		}
	})
}

// ID-5: the bearer reaches the apiserver and the logs in no header but its own.
func TestID5BearerInOtherHeaders(t *testing.T) {
	names := []string{
		"X-Forwarded-Access-Token", "X-Auth-Request-Access-Token", "X-Amzn-Oidc-Accesstoken", "X-Amzn-Oidc-Data",
		"Cf-Access-Jwt-Assertion", "X-Goog-Iap-Jwt-Assertion", "X-Pomerium-Jwt-Assertion", "X-Id-Token", "X-Access-Token",
		"X-Ms-Token-Aad-Access-Token", "Authentik-Jwt", "X-Original-Authorization", "Authorization-Copy",
	}
	everyWay(t, shared.px, func(t *testing.T, w way) {
		bearer := token(map[string]any{"jti": "copied-" + w.protocol + w.cluster})
		c := call{path: "/api"}.bearer(bearer)
		for i, name := range names {
			value := bearer
			if i%2 == 1 {
				value = "Bearer " + bearer
			}
			c = c.with(name + ": " + value)
		}
		r := w.relayed(t, c)
		for _, field := range r.Fields {
			if !strings.EqualFold(field.Name, "Authorization") && strings.Contains(field.Value, bearer) {
				t.Errorf("%s reached the apiserver", field.Name)
			}
		}
		if log := shared.px.Everything(); strings.Contains(log, bearer[len(bearer)-40:]) {
			t.Error("the bearer is in the log")
		}
	})
}
