package authn

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// AUTH-13: what the endpoints may answer, whose fault it is, and that the next
// token is judged as if nothing had happened.
func TestOIDCAnswers(t *testing.T) {
	p := newIDP(t, k1().JWK())
	typed := func(media string, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			_, _ = w.Write([]byte(body))
		}
	}
	elsewhere := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, p.Server.URL+"/other", code) }
	}
	broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	const ok = `{"sub":"alice","active":true,"aud":"proxy-a"}`
	for _, tt := range []struct {
		name                    string
		answer                  http.HandlerFunc
		userinfo, introspection string // a reason, a fault after "its" or "it", or empty
	}{
		{"good", typed("application/json", ok), "", ""},
		{"good by another name", typed("text/plain", " \n"+ok+"\n"), "", ""},
		{"401", status(401, "text"), errNotAccepted.Reason, "it answered with status 401"},
		{"403", status(403, "text"), errNotAccepted.Reason, "it answered with status 403"},
		{"400", status(400, ok), "it answered with status 400", "it answered with status 400"},
		{"400 about the token", status(400, `{"error":"invalid_token"}`), errNotAccepted.Reason, errInactive.Reason},
		{"400 of Kanidm", status(400, `{"error":"invalid_request","error_description":"x"}`), errNotAccepted.Reason, errInactive.Reason},
		{"400 about the client", status(400, `{"error":"invalid_client"}`), "it answered with status 400", "it answered with status 400"},
		{"400 of a framework", status(400, `{"error":"Bad Request"}`), "it answered with status 400", "it answered with status 400"},
		{"404 with an error", status(404, `{"error":"invalid_token"}`), "it answered with status 404", "it answered with status 404"},
		{"404", status(404, ok), "it answered with status 404", "it answered with status 404"},
		{"429", status(429, ok), "it answered with status 429", "it answered with status 429"},
		{"500", status(500, ok), "it answered with status 500", "it answered with status 500"},
		{"503", status(503, ok), "it answered with status 503", "it answered with status 503"},
		{"204", status(204, ""), "it answered with status 204", "it answered with status 204"},
		{"201", status(201, ok), "it answered with status 201", "it answered with status 201"},
		{"302", elsewhere(302), "it answered with status 302", "it answered with status 302"},
		{"307", elsewhere(307), "it answered with status 307", "it answered with status 307"},
		{"nothing", typed("application/json", ""), "its answer is not a JSON object", "its answer is not a JSON object"},
		{"HTML", typed("text/html", "<html>secret</html>"), "its answer is not a JSON object", "its answer is not a JSON object"},
		{"null", typed("application/json", "null"), "its answer is not a JSON object", "its answer is not a JSON object"},
		{"a list", typed("application/json", "["+ok+"]"), "its answer is not a JSON object", "its answer is not a JSON object"},
		{"broken off", typed("application/json", ok[:len(ok)-1]), "its answer is not a JSON object", "its answer is not a JSON object"},
		{"two objects", typed("application/json", ok+ok), "its answer is not a JSON object", "its answer is not a JSON object"},
		{"too large", typed("application/json", ok+strings.Repeat(" ", boundedjson.MaxAnswer)), "its answer is over 1 MiB", "its answer is over 1 MiB"},
		{"signed", typed("application/jwt; charset=utf-8", "a.b.c"), "its answer is a signed or encrypted JWT, and only plain JSON is supported", "its answer is not a JSON object"},
		{"hung up", broken, "the connection failed", "the connection failed"},
		{"a name twice", typed("application/json", `{"sub":"bob",`+ok[1:]), errClaims.Reason, errClaims.Reason},
		{"not Unicode", typed("application/json", "{\"a\":\"\xff\","+ok[1:]), errClaims.Reason, errClaims.Reason},
		{"half a pair", typed("application/json", `{"a":"\ud800",`+ok[1:]), errClaims.Reason, errClaims.Reason},
		{"empty object", typed("application/json", `{}`), "its answer names no subject", "its answer does not say whether the token is active"},
		{"another's", typed("application/json", strings.Replace(ok, "alice", "bob", 1)), errSubject.Reason, errSubject.Reason},
		{"SUB", typed("application/json", strings.Replace(ok, "sub", "SUB", 1)), "its answer names no subject", ""},
		{"sub null", typed("application/json", strings.Replace(ok, `"alice"`, "null", 1)), "its answer names no subject", ""},
		{"sub a number", typed("application/json", strings.Replace(ok, `"alice"`, "1", 1)), "its answer names no subject", "its answer has a member of the wrong type"},
	} {
		for name, at := range map[string]struct {
			endpoint *endpoint
			want     string
		}{userinfoEndpoint: {&p.userinfo, tt.userinfo}, introspectionEndpoint: {&p.introspection, tt.introspection}} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				w := newOIDCWorld(t, p, nil)
				token := p.issue(issuertest.Encode([]byte(tt.name)), alice(), w.active())
				next := p.issue(issuertest.Encode([]byte(tt.name+", again")), alice(), w.active())
				at.endpoint.answers(tt.answer)
				defer at.endpoint.answers(nil)
				var faults []string
				switch {
				case at.want == "":
					w.check(t, token, "alice", "")
				case strings.HasPrefix(at.want, "it"), strings.HasPrefix(at.want, "the connection "):
					faults = []string{p.URL + ": " + name + ": " + at.want}
					w.unavailable(t, token, faults[0])
				default:
					w.check(t, token, "", at.want)
				}
				if diff := cmp.Diff(faults, w.Faults()); diff != "" {
					t.Error(diff)
				}
				at.endpoint.answers(nil)
				if faults != nil { // it is asked again at once, without a restart
					w.check(t, token, "alice", "")
				}
				w.check(t, next, "alice", "")
				if faults := w.Faults(); faults != nil {
					t.Errorf("afterwards: %q", faults)
				}
			})
		}
	}
	if n := p.Others.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// AUTH-13: an endpoint that does not answer, is down, or has another
// certificate, from the start and later.
func TestOIDCEndpointFaults(t *testing.T) {
	p, stopped := newIDP(t, k1().JWK()), newIDP(t)
	stopped.Server.Close()
	w := newOIDCWorld(t, p, nil)
	for i, tt := range []struct{ at, fault string }{
		{strings.Replace(p.Server.URL, "127.0.0.1", "localhost", 1) + "/userinfo", "its certificate is not trusted"},
		{stopped.Server.URL + "/userinfo", "it refused the connection"},
	} {
		p.discovers(map[string]any{"userinfo_endpoint": tt.at})
		w := newOIDCWorld(t, p, nil)
		token := p.issue(fmt.Sprint("token", i), alice(), w.active())
		w.unavailable(t, token, p.URL+": "+userinfoEndpoint+": "+tt.fault)
		w.unavailable(t, w.signed(t), tt.fault)
	}
	p.discovers(nil)
	token := p.issue("slow", alice(), w.active())
	for name, e := range map[string]*endpoint{userinfoEndpoint: &p.userinfo, introspectionEndpoint: &p.introspection} {
		e.answers(hangs)
		_, err := uncached(w.Validator).Authenticate(shortly(t), token)
		var fault *Unavailable
		if !errors.As(err, &fault) || fault.Fault != p.URL+": "+name+": it did not answer in time" {
			t.Errorf("got %v", err)
		}
		e.answers(nil)
	}
	w.check(t, token, "alice", "")
}

// A provider without userinfo is a fault with claims_source UserInfo, of which
// the notice knows without a token.
func TestOIDCWithoutUserinfo(t *testing.T) {
	p := newIDP(t, k1().JWK())
	for _, at := range []any{absent, nil, 1, "", "/userinfo", "http://idp.example.test/userinfo", "https://a@idp.example.test/userinfo", "https:///userinfo"} {
		p.discovers(map[string]any{"userinfo_endpoint": at})
		w := newOIDCWorld(t, p, nil)
		w.Refresh()
		want := []string{p.URL + ": its discovery document names no userinfo_endpoint that is an https URL"}
		eventually(t, "the fault is known", func() bool { return cmp.Equal(want, w.Faults()) })
		w.unavailable(t, w.signed(t), want[0])
		w.unavailable(t, p.issue("opaque", alice(), w.active()), want[0])
		w = newOIDCWorld(t, p, fromToken)
		w.check(t, w.token(t, k1(), p), "alice", "")
		if faults := w.Faults(); faults != nil {
			t.Errorf("with claims of the token: %q", faults)
		}
	}
	w := newOIDCWorld(t, p, nil)
	token := w.signed(t)
	w.unavailable(t, token, "https URL")
	p.discovers(nil)
	w.clock.Step(keysAge)
	w.check(t, token, "alice", "")
	w.sent(t, 1, 0)
}

// AUTH-13: down at the start, and back without a restart.
func TestOIDCDownAtStart(t *testing.T) {
	p := newIDP(t, k1().JWK())
	p.Answer(status(503, ""), nil)
	var changes sync.Map
	w := newOIDCWorld(t, p, nil)
	w.factory.options.OnIssuerFault = func(issuer string) { changes.Store(issuer, true) }
	token, opaque := w.signed(t), p.issue("opaque", alice(), w.active())
	w.unavailable(t, token, "it answered with status 503")
	w.unavailable(t, opaque, "it answered with status 503")
	if diff := cmp.Diff([]string{p.URL + ": it answered with status 503"}, w.Faults()); diff != "" {
		t.Error(diff)
	}
	w.sent(t, 0, 0)
	p.Answer(nil, nil)
	w.clock.Step(retryNoKeys)
	w.check(t, token, "alice", "")
	w.check(t, opaque, "alice", "")
	if _, told := changes.Load(p.URL); !told || w.Faults() != nil {
		t.Errorf("faults %q", w.Faults())
	}
}

// AUTH-5, AUTH-12: a thousand first uses of one token ask once.
func TestOIDCSingleFlight(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newOIDCWorld(t, p, nil)
	for want, token := range []string{w.signed(t), p.issue("opaque", alice(), w.active())} {
		var wait sync.WaitGroup
		for range 1000 {
			wait.Go(func() { w.check(t, token, "alice", "") })
		}
		wait.Wait()
		w.sent(t, want+1, want)
	}
	t.Logf("2 tokens, 1,000 first uses each: %d calls of userinfo, %d of introspection", p.userinfo.calls(), p.introspection.calls())
}

// AUTH-13: a flood of random tokens, with good ones beside it.
func TestOIDCFlood(t *testing.T) {
	p := newIDP(t, k1().JWK())
	for validation, endpoint := range map[string]*endpoint{AudienceEnforce: &p.introspection, AudienceOff: &p.userinfo} {
		t.Run(validation, func(t *testing.T) {
			w := newOIDCWorld(t, p, func(cfg *oidcConfig) { cfg.AudienceValidation = validation })
			good := p.issue("good-"+validation, alice(), w.active())
			w.check(t, good, "alice", "")
			before := endpoint.calls()
			var refused, limited atomic.Int64
			runtime.GC()
			var m0, m1 runtime.MemStats
			runtime.ReadMemStats(&m0)
			// More at a time than wait for their turn.
			var wait sync.WaitGroup
			for n := range 64 {
				wait.Go(func() {
					for i := range 20_000 / 64 {
						_, err := w.Authenticate(t.Context(), fmt.Sprint("random-", n, "-", i))
						switch {
						case isLimited(err):
							limited.Add(1)
						case reasonOf(err) == errInactive.Reason, reasonOf(err) == errNotAccepted.Reason:
							refused.Add(1)
						default:
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
			runtime.GC()
			runtime.ReadMemStats(&m1)
			t.Logf("20,000 random tokens: %d calls, %d refused, %d not judged, %d KiB held", endpoint.calls()-before, refused.Load(), limited.Load(), (int64(m1.HeapAlloc)-int64(m0.HeapAlloc))>>10)
			// 2,000 at once, and 40 that wait for a clock that stands still.
			if n := endpoint.calls() - before; n != int(refused.Load()) || n != 2040 {
				t.Errorf("%d calls for %d refusals", n, refused.Load())
			}
			newcomer := p.issue("new-"+validation, alice(), w.active())
			if _, err := w.Authenticate(t.Context(), newcomer); !isLimited(err) {
				t.Errorf("a new token in the middle of it: %v", err)
			}
			// Nothing is remembered of who was not asked about (AUTH-12).
			w.clock.Step(refusedFor / 5)
			w.check(t, newcomer, "alice", "")
			w.clock.Step(testTTL)
			w.check(t, good, "alice", "") // asked about again
			w.check(t, w.signed(t), "alice", "")
			if faults := w.Faults(); faults != nil {
				t.Errorf("a flood is shown as %q", faults)
			}
		})
	}
}

// AUTH-12: what is remembered of good tokens is bounded.
func TestOIDCCacheIsBounded(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newOIDCWorld(t, p, func(cfg *oidcConfig) { cfg.AudienceValidation = AudienceOff })
	small := NewCache(CacheOptions{Entries: 200, Now: w.clock.Now})
	w.Validator = newCaching(uncached(w.Validator), small)
	p.userinfo.answers(asJSON(alice()))
	for i := range 1000 {
		w.check(t, fmt.Sprint("token", i), "alice", "")
	}
	if n := small.Len(); n > 200 {
		t.Errorf("%d tokens are remembered", n)
	}
	w.sent(t, 1000, 0)
}

// OBS-01: no error of this validator holds a piece of a token or of an answer.
func TestOIDCErrorsHoldNothing(t *testing.T) {
	p := newIDP(t, k1().JWK())
	const token = "a-token-that-nobody-may-see"
	for _, answer := range []http.HandlerFunc{status(200, token), status(401, token), status(500, token), status(200, `{"sub":"`+token+`"`)} {
		for _, e := range []*endpoint{&p.userinfo, &p.introspection} {
			w := newOIDCWorld(t, p, nil)
			p.issue(token, alice(), w.active())
			e.answers(answer)
			_, err := w.Authenticate(t.Context(), token)
			if err == nil || strings.Contains(err.Error(), token) || strings.Contains(fmt.Sprint(w.Faults()), token) {
				t.Errorf("got %v, %q", err, w.Faults())
			}
			e.answers(nil)
		}
	}
}

// AUTH-13: that the notice has to be written anew is told when it is so.
func TestOIDCTellsOfFaults(t *testing.T) {
	p := newIDP(t, k1().JWK())
	var told []string
	w := newOIDCWorld(t, p, func(cfg *oidcConfig) {
		cfg.OnIssuerFault = func(issuer string) { told = append(told, issuer) }
	})
	token := p.issue("opaque", alice(), w.active())
	for range 2 {
		p.userinfo.answers(status(500, ""))
		w.unavailable(t, token, "it answered with status 500")
		w.unavailable(t, token, "it answered with status 500")
		p.userinfo.answers(nil)
		w.check(t, token, "alice", "")
		w.clock.Step(testTTL)
	}
	if want := []string{p.URL, p.URL, p.URL, p.URL}; !cmp.Equal(want, told) {
		t.Errorf("told of %q", told)
	}
}
