package users

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// exchangeRefused is what a caller is told whose token the provider refuses.
const exchangeRefused = "the token exchange was refused"

// unavailable is what a caller is told for the provider's faults (AUTH-13).
const unavailable = "the identity provider cannot be asked"

// TEX-02, AUTH-16: answers of token endpoints. What they demand is in
// TestAUTH15WhatReachesTheUpstream.
func TestTEX02Answers(t *testing.T) {
	w := get(t)
	const words = "words-of-the-provider-0123456789"
	refusal := func(status int, code string) oidc.Fault {
		return oidc.JSON(status, `{"error":"`+code+`","error_description":"`+words+`","error_uri":"https://`+words+`"}`)
	}
	html := func(status int) oidc.Fault {
		return oidc.Fault{Status: status, Body: []byte("<html>" + words), ContentType: "text/html"}
	}
	forAnother := w.idp.Token(oidc.Robot, map[string]any{"aud": otherID})
	for _, tt := range []struct {
		name   string
		fault  oidc.Fault
		code   int
		result string
	}{
		{"token_type bearer", oidc.With(map[string]any{"token_type": "bearer"}), 200, "ok"},
		{"token_type BEARER", oidc.With(map[string]any{"token_type": "BEARER"}), 200, "ok"},
		{"token_type N_A", oidc.With(map[string]any{"token_type": "N_A"}), 200, "ok"},
		{"token_type n_a", oidc.With(map[string]any{"token_type": "n_a"}), 200, "ok"},
		{"issued_token_type IdToken", oidc.With(map[string]any{"issued_token_type": "IdToken"}), 200, "ok"},
		{"issued_token_type id_token", oidc.With(map[string]any{"issued_token_type": "id_token"}), 200, "ok"},
		{"no expires_in", oidc.NoExpiresIn, 200, "ok"},
		{"expires_in as text", oidc.With(map[string]any{"expires_in": "3600"}), 200, "ok"},
		{"expires_in in words", oidc.With(map[string]any{"expires_in": "an hour"}), 503, "unavailable"},
		{"an id_token beside", oidc.With(map[string]any{"id_token": w.idp.Token(oidc.Robot, nil), "access_token": "opaque-token", "issued_token_type": "AccessToken"}), 200, "ok"},
		{"slow", oidc.Slow(time.Second), 200, "ok"},

		{"for another audience", oidc.With(map[string]any{"access_token": forAnother}), 401, "invalid"},
		{"for another audience, beside", oidc.With(map[string]any{"id_token": forAnother}), 401, "invalid"},
		{"of another issuer", oidc.With(map[string]any{"access_token": w.kanidm.Token(oidc.Robot, nil)}), 503, "invalid"},
		{"expired", oidc.With(map[string]any{"access_token": w.idp.Token(oidc.Robot, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})}), 503, "invalid"},
		{"changed", oidc.With(map[string]any{"access_token": oidc.FlipSignatureBit(w.idp.Token(oidc.Robot, nil))}), 503, "invalid"},
		{"invalid_target", refusal(400, "invalid_target"), 401, "refused"},
		{"invalid_grant", refusal(400, "invalid_grant"), 401, "refused"},
		{"invalid_client", refusal(401, "invalid_client"), 401, "refused"},
		{"access_denied", refusal(403, "access_denied"), 401, "refused"},
		{"an error of its own", refusal(400, "machine_is_off"), 401, "refused"},

		{"500", refusal(500, "invalid_grant"), 503, "unavailable"},
		{"502, HTML", html(502), 503, "unavailable"},
		{"404, HTML", html(404), 503, "unavailable"},
		{"429", refusal(429, "slow_down"), 503, "unavailable"},
		{"200, HTML", html(200), 503, "unavailable"},
		{"200, half an object", oidc.JSON(200, `{"access_token":"`), 503, "unavailable"},
		{"200, an array", oidc.JSON(200, `[]`), 503, "unavailable"},
		{"200, an error in it", refusal(200, "invalid_grant"), 503, "unavailable"},
		{"200, no token", oidc.With(map[string]any{"access_token": nil}), 503, "unavailable"},
		{"200, a number for a token", oidc.With(map[string]any{"access_token": 1}), 503, "unavailable"},
		{"200, an access token alone", oidc.With(map[string]any{"issued_token_type": urn + "access_token"}), 503, "unavailable"},
		{"token_type DPoP", oidc.With(map[string]any{"token_type": "DPoP"}), 503, "unavailable"},
		{"over 1 MiB", oidc.Oversized(2 << 20), 503, "unavailable"},
		{"a redirect", oidc.Redirect(w.idp.ElsewhereURL()), 503, "unavailable"},
		{"no answer", oidc.Down, 503, "unavailable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer w.idp.Repair()
			elsewhere := w.idp.Calls(oidc.Elsewhere)
			w.idp.SetFault(oidc.Token, tt.fault)
			bearer := w.idp.APIToken(oidc.Robot)
			text := ""
			switch {
			case tt.code == http.StatusServiceUnavailable:
				text = unavailable
			case tt.result == "refused":
				text = exchangeRefused
			}
			series := `proxyauth_token_exchange_total{result="` + tt.result + `"}`
			counted := w.px.MustCounter(t, series)
			for _, f := range recorded {
				up := w.records[f.mode]
				up.Reset()
				a := ask(t, w.px, "h2", "basic"+f.suffix, "/api", bearer)
				if tt.code == http.StatusOK {
					if a.Code != http.StatusOK {
						t.Errorf("%d %s", a.Code, a.Body)
					}
					continue
				}
				a.refused(t, tt.code, text)
				up.None(t)
				if strings.Contains(a.Body, words[:16]) || strings.Contains(strings.Join(a.Header["Warning"], ""), words[:16]) {
					t.Errorf("the provider's words are passed on: %s", a.Body)
				}
			}
			if n := w.px.MustCounter(t, series) - counted; n != len(recorded) {
				t.Errorf("%d exchanges are counted as %s, want %d", n, tt.result, len(recorded))
			}
			// A human on the same URL needs no exchange.
			if a := ask(t, w.px, "h2", "basic"+recFrontProxy.suffix, "/api", w.idp.Token(oidc.Alice, nil)); a.Code != http.StatusOK {
				t.Errorf("a human meanwhile: %d %s", a.Code, a.Body)
			}
			if n := w.idp.Calls(oidc.Elsewhere) - elsewhere; n != 0 {
				t.Errorf("the redirect was followed %d times", n)
			}
		})
	}
	if strings.Contains(w.px.Everything(), words[:16]) {
		t.Error("the provider's words are in the log")
	}
	// Recovery needs no restart.
	for _, f := range recorded {
		if a := ask(t, w.px, "h2", "basic"+f.suffix, "/api", w.idp.APIToken(oidc.Robot)); a.Code != http.StatusOK {
			t.Errorf("repaired: %d %s", a.Code, a.Body)
		}
	}
}

// TEX-02, AUTH-13: a token endpoint that hangs is a 503 within its ten
// seconds, told in the notice IssuerUnavailable; humans and other clusters go
// on meanwhile.
func TestTEX02Hang(t *testing.T) {
	t.Parallel()
	idp := oidc.Start(t, oidc.Options{Clients: clients()})
	up := rawserver.Start(t, rawserver.Options{})
	px := startProxy(t, "", map[string]string{
		"hang.yaml":  recorderManifest("hang", v1.ModeFrontProxy, up, exchanging(byJWT(idp), idp)),
		"other.yaml": recorderManifest("other", v1.ModeFrontProxy, up, byJWT(idp)),
	}, nil)
	idp.SetFault(oidc.Token, oidc.Slow(time.Minute))
	answers := make(chan answer)
	machine := idp.APIToken(oidc.Robot)
	go func() {
		defer close(answers)
		answers <- ask(t, px, "h1", "hang", "/api", machine)
	}()
	for ended := false; !ended; {
		select {
		case a, ok := <-answers:
			if !ok {
				t.FailNow() // ask has said why
			}
			a.refused(t, http.StatusServiceUnavailable, unavailable)
			t.Logf("answered after %v", a.took.Round(time.Millisecond))
			// Two seconds more for a busy machine.
			if a.took < 5*time.Second || a.took > 12*time.Second {
				t.Errorf("answered after %v", a.took)
			}
			ended = true
		case <-time.After(300 * time.Millisecond):
			for _, cluster := range []string{"hang", "other"} {
				if a := ask(t, px, "h2", cluster, "/api", idp.Token(oidc.Alice, nil)); a.Code != http.StatusOK || a.took > 5*time.Second {
					t.Errorf("a human on %s meanwhile: %d %s after %v", cluster, a.Code, a.Body, a.took)
				}
			}
		}
	}
	s := px.MustCluster(t, ns, "hang", func(s *proxy.ClusterStatus) bool { return s.Condition("IssuerUnavailable") != nil })
	if c := s.Condition("IssuerUnavailable"); !strings.Contains(c.Message, idp.Issuer) || s.Ready() != "True/Serving" {
		text, _ := json.Marshal(s.Status)
		t.Errorf("status %s", text)
	}
	idp.Repair()
	if a := ask(t, px, "h2", "hang", "/api", idp.APIToken(oidc.Robot)); a.Code != http.StatusOK {
		t.Errorf("repaired: %d %s", a.Code, a.Body)
	}
	px.MustCluster(t, ns, "hang", func(s *proxy.ClusterStatus) bool { return s.Condition("IssuerUnavailable") == nil })
}
