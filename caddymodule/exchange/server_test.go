package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/internal/tlstest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is what the server saw of one request.
type request struct {
	method, path string
	header       http.Header
	form         url.Values
}

// server is a token endpoint that keeps what it saw.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	seen   []request
	answer http.HandlerFunc
}

func newServer(t testing.TB, answer http.HandlerFunc) *server {
	t.Helper()
	s := &server{answer: answer}
	s.Server = tlstest.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			t.Error(err)
		}
		r.Form = form
		s.mu.Lock()
		s.seen = append(s.seen, request{r.Method, r.URL.String(), r.Header.Clone(), form})
		s.mu.Unlock()
		s.answer(w, r)
	}))
	return s
}

func (s *server) ca() string { return tlstest.CA(s.Server) }

// requests returns what was seen and forgets it.
func (s *server) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// client makes a client of the server; change may alter its configuration.
func (s *server) client(t testing.TB, change func(*k8swatch.TokenExchange)) *Client {
	t.Helper()
	c := k8swatch.TokenExchange{
		TokenURL: s.URL + "/oauth2/token", CertificateAuthority: s.ca(), ClientID: "proxy",
		Audience: "proxy", RequestedTokenType: typePrefix + "id_token", Scopes: []string{"openid", "groups_name"}, SubjectTokenType: typePrefix + "access_token",
	}
	if change != nil {
		change(&c)
	}
	client, err := New(&c, boundedjson.NewReader(1), nil, time.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// with answers with a status and a JSON document.
func with(code int, document any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if s, ok := document.(string); ok {
			_, _ = io.WriteString(w, s)
			return
		}
		_ = json.NewEncoder(w).Encode(document)
	}
}

// The tokens that can be asked for, as the values of forward.
const idToken, accessToken = v1.ForwardIDToken, v1.ForwardAccessToken

type object = map[string]any

// standard is an answer as RFC 8693 has it, changed by pairs of name and
// value; nil removes a member.
func standard(changes ...any) object {
	o := object{"access_token": "issued-token", "issued_token_type": typePrefix + "id_token", "token_type": "N_A", "expires_in": 300}
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == nil {
			delete(o, changes[i].(string))
			continue
		}
		o[changes[i].(string)] = changes[i+1]
	}
	return o
}

func exchange(t testing.TB, c *Client, use string) (*Token, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c.config.Forward = use
	return c.Exchange(ctx, "the-subject-token-of-a-machine")
}

// kindOf says whether an error is a refusal, with its code, or a fault.
func kindOf(err error) string {
	var refused *Refused
	var fault idp.Fault
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &refused):
		return "refused " + refused.Code
	case errors.As(err, &fault):
		return "fault"
	}
	return "unknown: " + err.Error()
}
