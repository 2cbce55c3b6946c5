package exchange

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// TEX-02, AUTH-16: the form has everything that some server demands, once.
func TestForm(t *testing.T) {
	s := newServer(t, with(200, standard()))
	c := s.client(t, nil)
	if _, err := exchange(t, c, idToken); err != nil {
		t.Fatal(err)
	}
	seen := s.requests()
	if len(seen) != 1 {
		t.Fatalf("%d requests", len(seen))
	}
	want := url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token":        {"the-subject-token-of-a-machine"},
		"subject_token_type":   {"urn:ietf:params:oauth:token-type:access_token"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:id_token"},
		"client_id":            {"proxy"}, "audience": {"proxy"}, "scope": {"openid groups_name"},
	}
	if diff := cmp.Diff(want, seen[0].form); diff != "" {
		t.Error(diff)
	}
	got := []string{seen[0].method, seen[0].path, seen[0].header.Get("Content-Type"), seen[0].header.Get("Accept"), seen[0].header.Get("Authorization")}
	if diff := cmp.Diff([]string{"POST", "/oauth2/token", "application/x-www-form-urlencoded", "application/json", ""}, got); diff != "" {
		t.Error(diff)
	}

	// What is not configured is left out, what has a default has it.
	c = s.client(t, func(c *k8swatch.TokenExchange) {
		*c = k8swatch.TokenExchange{TokenURL: c.TokenURL, CertificateAuthority: c.CertificateAuthority, ClientID: "proxy", SubjectTokenType: typePrefix + "access_token"}
	})
	if _, err := exchange(t, c, idToken); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"requested_token_type", "audience", "scope"} {
		want.Del(name)
	}
	if diff := cmp.Diff(want, s.requests()[0].form); diff != "" {
		t.Error(diff)
	}
}

// Whatever a bearer holds, it is one value of the form.
func TestSubjectIsOneValue(t *testing.T) {
	s := newServer(t, with(200, standard()))
	c := s.client(t, func(c *k8swatch.TokenExchange) { c.Resource = "https://cluster.example.test/?a=1&b=é" })
	for _, subject := range []string{"a+b/c==", "~-._", strings.Repeat("x", 64<<10), "a&client_id=other&grant_type=password", "a\r\nX: y"} {
		if _, err := c.Exchange(t.Context(), subject); err != nil {
			t.Fatal(err)
		}
		form := s.requests()[0].form
		if diff := cmp.Diff([]string{subject}, form["subject_token"]); diff != "" {
			t.Error(diff)
		}
		if len(form) != 8 || form.Get("client_id") != "proxy" || form.Get("resource") != "https://cluster.example.test/?a=1&b=é" {
			t.Errorf("form of %q: %v", subject, form)
		}
	}
}

// RFC 6749 section 2.3.1: both methods, whichever a server accepts.
func TestClientAuthentication(t *testing.T) {
	const id, secret = "pröxy:1", "s+e/c r&e=t%41ü"
	byBasic := func(r *http.Request) bool {
		user, password, ok := r.BasicAuth()
		u, err1 := url.QueryUnescape(user)
		p, err2 := url.QueryUnescape(password)
		return ok && err1 == nil && err2 == nil && u == id && p == secret
	}
	byPost := func(r *http.Request) bool {
		return r.Form.Get("client_id") == id && r.Form.Get("client_secret") == secret
	}
	for _, tt := range []struct {
		name     string
		accepts  func(*http.Request) bool
		status   int
		code     string
		first    []string // the requests of the first exchange
		second   []string // and of the next
		finally  string
		finally2 string
	}{
		{"both", func(r *http.Request) bool { return byBasic(r) || byPost(r) }, 401, "invalid_client", []string{"basic"}, []string{"basic"}, "ok", "ok"},
		{"basic", byBasic, 401, "invalid_client", []string{"basic"}, []string{"basic"}, "ok", "ok"},
		{"post", byPost, 401, "invalid_client", []string{"basic", "post"}, []string{"post"}, "ok", "ok"},
		{"post, 400", byPost, 400, "invalid_client", []string{"basic", "post"}, []string{"post"}, "ok", "ok"},
		{"post, a parameter is missing", byPost, 400, "invalid_request", []string{"basic", "post"}, []string{"post"}, "ok", "ok"},
		{"post, as Gitea says it", byPost, 400, "unauthorized_client", []string{"basic", "post"}, []string{"post"}, "ok", "ok"},
		{"neither", func(*http.Request) bool { return false }, 401, "invalid_client", []string{"basic", "post"}, []string{"basic", "post"}, "refused invalid_client", "refused invalid_client"},
		{"another error", byPost, 400, "invalid_grant", []string{"basic"}, []string{"basic"}, "refused invalid_grant", "refused invalid_grant"},
		{"no OAuth error", byPost, 401, "", []string{"basic"}, []string{"basic"}, "fault", "fault"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.accepts(r) {
					with(200, standard())(w, r)
					return
				}
				with(tt.status, object{"error": tt.code})(w, r)
			})
			c := s.client(t, func(c *k8swatch.TokenExchange) { c.ClientID, c.ClientSecret = id, secret })
			for i, want := range [][]string{tt.first, tt.second} {
				_, err := exchange(t, c, idToken)
				if got := kindOf(err); got != []string{tt.finally, tt.finally2}[i] {
					t.Errorf("exchange %d: %s", i, got)
				}
				if diff := cmp.Diff(want, methodsOf(t, s.requests())); diff != "" {
					t.Errorf("exchange %d: %s", i, diff)
				}
			}
		})
	}
}

// methodsOf names the methods of requests, and demands that each uses one.
func methodsOf(t testing.TB, requests []request) (methods []string) {
	for _, r := range requests {
		inHeader, inForm := r.header.Get("Authorization") != "", r.form.Has("client_secret")
		switch {
		case inHeader && inForm:
			t.Error("two methods in one request")
		case inHeader:
			methods = append(methods, "basic")
		case inForm:
			methods = append(methods, "post")
		default:
			methods = append(methods, "none")
		}
		if !r.form.Has("client_id") {
			t.Error("a form without client_id")
		}
	}
	return methods
}

// What a provider says about strangers' tokens teaches nothing: only a method
// that brought a token is preferred. A provider that changes its mind is
// followed.
func TestMethodIsLearntFromTokens(t *testing.T) {
	var mu sync.Mutex
	accepted, refusal := "post", "invalid_request"
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _, inHeader := r.BasicAuth()
		switch {
		case inHeader != (accepted == "basic"):
			with(401, object{"error": "invalid_client"})(w, r)
		case r.Form.Get("subject_token") != "good":
			with(400, object{"error": refusal})(w, r)
		default:
			with(200, standard())(w, r)
		}
	})
	c := s.client(t, func(c *k8swatch.TokenExchange) { c.ClientSecret = "secret" })
	for i, step := range []struct {
		accepted, refusal, subject string
		methods                    []string
		result                     string
	}{
		{"post", "invalid_grant", "bad", []string{"basic", "post"}, "refused invalid_grant"},
		{"post", "invalid_grant", "bad", []string{"basic", "post"}, "refused invalid_grant"},
		{"basic", "invalid_request", "bad", []string{"basic", "post"}, "refused invalid_client"},
		{"post", "invalid_grant", "good", []string{"basic", "post"}, "ok"},
		{"post", "invalid_request", "bad", []string{"post"}, "refused invalid_request"},
		{"post", "invalid_client", "bad", []string{"post", "basic"}, "refused invalid_client"},
		{"post", "invalid_request", "good", []string{"post"}, "ok"},
		{"basic", "invalid_request", "good", []string{"post", "basic"}, "ok"},
		{"basic", "invalid_request", "good", []string{"basic"}, "ok"},
		{"basic", "invalid_request", "bad", []string{"basic"}, "refused invalid_request"},
	} {
		mu.Lock()
		accepted, refusal = step.accepted, step.refusal
		mu.Unlock()
		_, err := c.Exchange(t.Context(), step.subject)
		if got := kindOf(err); got != step.result {
			t.Errorf("step %d: %s, want %s", i, got, step.result)
		}
		if diff := cmp.Diff(step.methods, methodsOf(t, s.requests())); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
}

// A trouble on the second try is a trouble, not a refusal.
func TestFaultOnTheSecondTry(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); ok {
			with(401, object{"error": "invalid_client"})(w, r)
			return
		}
		with(502, "")(w, r)
	})
	c := s.client(t, func(c *k8swatch.TokenExchange) { c.ClientSecret = "secret" })
	if _, err := exchange(t, c, idToken); kindOf(err) != "fault" {
		t.Errorf("got %v", err)
	}
}

// AUTH-13: everything that is the provider's trouble, in words of our own.
func TestTransportFaults(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()
	elsewhere := newServer(t, with(200, standard()))

	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		change func(*k8swatch.TokenExchange)
		want   idp.Fault
	}{
		{"down", nil, func(c *k8swatch.TokenExchange) { c.TokenURL = gone.URL }, "it refused the connection"},
		{"no name", nil, func(c *k8swatch.TokenExchange) { c.TokenURL = "https://idp.invalid/token" }, "its name cannot be resolved"},
		{"another certificate", nil, func(c *k8swatch.TokenExchange) { c.CertificateAuthority = "" }, "its certificate is not trusted"},
		{"no TLS", nil, func(c *k8swatch.TokenExchange) { c.TokenURL = strings.Replace(plain.URL, "http:", "https:", 1) }, "the connection failed"},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}, nil, "it did not answer in time"},
		{"hangs in its answer", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("{"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, nil, "it did not answer in time"},
		{"breaks off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, "the connection failed"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, nil, "it answered with status 307"},
		{"redirect with an OAuth error", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			with(302, object{"error": "invalid_grant"})(w, r)
		}, nil, "it answered with status 302"},
		{"500 with an OAuth error", with(500, object{"error": "invalid_grant"}), nil, "it answered with status 500"},
		{"201", with(201, standard()), nil, "it answered with status 201"},
		{"204", with(204, ""), nil, "it answered with status 204"},
		{"over 1 MiB", with(200, standard("padding", strings.Repeat("x", 1<<20))), nil, "its answer is over 1 MiB"},
		{"refusal over 1 MiB", with(400, object{"error": "invalid_grant", "padding": strings.Repeat("x", 1<<20)}), nil, "its answer is over 1 MiB"},
		{"headers over 64 KiB", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 100<<10))
			with(200, standard())(w, r)
		}, nil, "the connection failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newServer(t, tt.answer).client(t, tt.change)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if strings.Contains(string(tt.want), "in time") {
				ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			}
			defer cancel()
			_, err := c.Exchange(ctx, "the-subject-token-of-a-machine")
			var fault idp.Fault
			if !errors.As(err, &fault) || fault != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if n := len(elsewhere.requests()); n != 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
}

func TestNew(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config k8swatch.TokenExchange
		ok     bool
	}{
		{"good", k8swatch.TokenExchange{TokenURL: "https://idp.example.test/token?realm=a", ClientID: "c"}, true},
		{"http", k8swatch.TokenExchange{TokenURL: "http://idp.example.test/token", ClientID: "c"}, false},
		{"no host", k8swatch.TokenExchange{TokenURL: "https:///token", ClientID: "c"}, false},
		{"no URL", k8swatch.TokenExchange{TokenURL: "https://%zz", ClientID: "c"}, false},
		{"empty", k8swatch.TokenExchange{ClientID: "c"}, false},
		{"user information", k8swatch.TokenExchange{TokenURL: "https://user:hunter2@idp.example.test/token", ClientID: "c"}, false},
		{"fragment", k8swatch.TokenExchange{TokenURL: "https://idp.example.test/token#a", ClientID: "c"}, false},
		{"no client", k8swatch.TokenExchange{TokenURL: "https://idp.example.test/token"}, false},
		{"no certificate", k8swatch.TokenExchange{TokenURL: "https://idp.example.test/token", ClientID: "c", CertificateAuthority: "hunter2"}, false},
	} {
		c, err := New(&tt.config, boundedjson.NewReader(1), nil, time.Now, nil)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error quotes the configuration: %v", tt.name, err)
		}
		if err == nil && c.Name() != "https://idp.example.test/token" {
			t.Errorf("%s: name %q", tt.name, c.Name())
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	config := k8swatch.TokenExchange{TokenURL: "https://idp.example.test/token?key=hunter2", ClientID: "proxy", ClientSecret: "hunter2"}
	c, err := New(&config, boundedjson.NewReader(1), nil, time.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, v := range []any{c} {
			if s := fmt.Sprintf(format, v); strings.Contains(s, "hunter2") || !strings.Contains(s, "token exchange") {
				t.Errorf("%s prints %q", format, s)
			}
		}
	}
}
