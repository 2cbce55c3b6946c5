package oidc

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

// Endpoint is a part of the provider that is counted and can fail.
type Endpoint string

// The endpoints.
const (
	Discovery     Endpoint = "discovery"
	Keys          Endpoint = "keys"
	Token         Endpoint = "token"
	Userinfo      Endpoint = "userinfo"
	Introspection Endpoint = "introspection"
	Authorize     Endpoint = "authorize"
	// Elsewhere is everything outside the issuer's path: nothing there is
	// announced, so only a URL taken from a token leads to it.
	Elsewhere Endpoint = "elsewhere"
	Other     Endpoint = "other"
)

// Fault is how an endpoint answers instead of working.
type Fault struct {
	// Delay comes first; alone it makes a slow endpoint that works.
	Delay time.Duration
	// Abort closes the connection without an answer.
	Abort bool
	// Status answers with that code and Body, whatever was asked.
	Status int
	Body   []byte
	// ContentType defaults to application/json.
	ContentType string
	// Location is the header of that name, for redirects.
	Location string
	// Stall leaves the answer without an end after Body.
	Stall bool
	// Edit changes the JSON object of an endpoint that works.
	Edit func(answer map[string]any)
}

// Ready-made faults.
var (
	Down          = Fault{Abort: true}
	InternalError = Fault{Status: http.StatusInternalServerError, Body: []byte(`{"error":"server_error","error_description":"provider text"}`)}
	Malformed     = Fault{Status: http.StatusOK, Body: []byte(`{"issuer": "https://`)}
	// WrongSubject is for Userinfo and Introspection: the claims of the right
	// user under the sub of another.
	WrongSubject = With(map[string]any{"sub": "subject-mallory"})
	// NoExpiresIn is for Token.
	NoExpiresIn = With(map[string]any{"expires_in": nil})
)

// Slow answers properly after d.
func Slow(d time.Duration) Fault { return Fault{Delay: d} }

// Oversized answers with n bytes of valid JSON.
func Oversized(n int) Fault {
	body := append([]byte(`{"padding":"`), bytes.Repeat([]byte("x"), n)...)
	return Fault{Status: http.StatusOK, Body: append(body, `"}`...)}
}

// Redirect answers with a 302 to that URL.
func Redirect(location string) Fault {
	return Fault{Status: http.StatusFound, Location: location}
}

// JSON answers with a text of the test's choice.
func JSON(status int, body string) Fault { return Fault{Status: status, Body: []byte(body)} }

// With answers properly but for these members; nil leaves one out.
func With(changes map[string]any) Fault {
	return Fault{Edit: func(answer map[string]any) { merge(answer, changes) }}
}

// SetFault makes an endpoint fail from now on; Repair ends it.
func (p *Provider) SetFault(e Endpoint, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[e] = f
}

// Repair ends the faults of these endpoints, of all without one.
func (p *Provider) Repair(endpoints ...Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(endpoints) == 0 {
		clear(p.faults)
	}
	for _, e := range endpoints {
		delete(p.faults, e)
	}
}

// Calls is how often an endpoint was called, faults included.
func (p *Provider) Calls(e Endpoint) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[e]
}

// AllCalls is Calls of every endpoint called so far.
func (p *Provider) AllCalls() map[Endpoint]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

// ElsewhereURL is a key set URL on this server that no document names; a call
// to it counts as Elsewhere.
func (p *Provider) ElsewhereURL() string {
	return strings.TrimSuffix(p.Issuer, issuerPath) + "/elsewhere/keys"
}

func endpointOf(path string) Endpoint {
	rest, ok := strings.CutPrefix(path, issuerPath)
	if !ok {
		return Elsewhere
	}
	switch rest {
	case discoveryPath:
		return Discovery
	case "/keys":
		return Keys
	case tokenPath:
		return Token
	case introspectPath:
		return Introspection
	case "/userinfo":
		return Userinfo
	case "/authorize":
		return Authorize
	default:
		return Other
	}
}

// observe counts and, where a fault is set, answers.
func (p *Provider) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := endpointOf(r.URL.Path)
		p.mu.Lock()
		p.calls[e]++
		f, broken := p.faults[e]
		p.mu.Unlock()
		if !broken {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
			return
		}
		switch {
		case f.Abort:
			panic(http.ErrAbortHandler)
		case f.Edit != nil:
			edited(next, f.Edit).ServeHTTP(w, r)
		case f.Status == 0:
			next.ServeHTTP(w, r)
		default:
			contentType := f.ContentType
			if contentType == "" {
				contentType = "application/json"
			}
			w.Header().Set("Content-Type", contentType)
			if f.Location != "" {
				w.Header().Set("Location", f.Location)
			}
			w.WriteHeader(f.Status)
			_, _ = w.Write(f.Body)
			if f.Stall {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}
	})
}

// edited changes the JSON objects that a handler answers with 200.
func edited(next http.Handler, edit func(answer map[string]any)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := httptest.NewRecorder()
		next.ServeHTTP(record, r)
		body := record.Body.Bytes()
		var answer map[string]any
		if record.Code == http.StatusOK && json.Unmarshal(body, &answer) == nil {
			edit(answer)
			var err error
			if body, err = json.Marshal(answer); err != nil {
				panic(err)
			}
			record.Header().Del("Content-Length")
		}
		maps.Copy(w.Header(), record.Header())
		w.WriteHeader(record.Code)
		_, _ = w.Write(body)
	})
}
