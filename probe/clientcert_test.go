package probe

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// CERT-9: what an answer says about a client certificate.
func TestCheckClientCert(t *testing.T) {
	forbidText := func(message string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "message": message})
		}
	}
	tests := map[string]struct {
		handler http.HandlerFunc
		seen    Seen
		message string // part
	}{
		"401": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }, SeenAnonymous, ""},
		"anonymous": {func(w http.ResponseWriter, r *http.Request) {
			answer(w, 201, "system:anonymous", "", []string{"system:unauthenticated"}, nil)
		}, SeenAnonymous, ""},
		"anonymous may not ask": {func(w http.ResponseWriter, r *http.Request) { forbid(w, "system:anonymous") }, SeenAnonymous, ""},
		"somebody": {func(w http.ResponseWriter, r *http.Request) {
			answer(w, 201, "carol", "", []string{"staff"}, nil)
		}, SeenIdentity, `user "carol", groups ["staff"]`},
		"somebody may not ask": {func(w http.ResponseWriter, r *http.Request) { forbid(w, "carol") }, SeenIdentity, `user "carol"`},
		"almost anonymous":     {func(w http.ResponseWriter, r *http.Request) { forbid(w, "system:anonymous2") }, SeenIdentity, "anonymous2"},
		"a name that looks like another mention": {func(w http.ResponseWriter, r *http.Request) {
			forbid(w, `x" User "system:anonymous`)
		}, SeenIdentity, "outrank"},
		"nobody":                  {func(w http.ResponseWriter, r *http.Request) { answer(w, 201, "", "", nil, nil) }, SeenUnknown, "names nobody"},
		"forbidden to nobody":     {forbidText(`User "" cannot`), SeenUnknown, "names nobody"},
		"forbidden, not to whom":  {forbidText("forbidden"), SeenUnknown, "to whom"},
		"forbidden, broken quote": {forbidText(`User "system:anonymous`), SeenUnknown, "to whom"},
		"forbidden by a page": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			io.WriteString(w, `<html>User "system:anonymous" cannot`)
		}, SeenUnknown, "to whom"},
		"200": {func(w http.ResponseWriter, r *http.Request) { answer(w, 200, "system:anonymous", "", nil, nil) }, SeenUnknown, "200"},
		"404": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }, SeenUnknown, "404"},
		"500": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, SeenUnknown, "500"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, SeenUnknown, "307"},
		"no review": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201); io.WriteString(w, "{}") }, SeenUnknown, "no SelfSubjectReview"},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			for {
				if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
					return
				}
			}
		}, SeenUnknown, "more than 1 MiB"},
		"hangs up": {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, SeenUnknown, "got no answer"},
		"a hostile name": {func(w http.ResponseWriter, r *http.Request) {
			answer(w, 201, "a\r\n\x1b[31m", "", []string{strings.Repeat("\n", 100_000)}, nil)
		}, SeenIdentity, `a\r\n\x1b[31m`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			base := server(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var sent authenticationv1.SelfSubjectReview
				if err := json.Unmarshal(body, &sent); err != nil || sent.Kind != "SelfSubjectReview" {
					t.Errorf("review %s", body)
				}
				if r.Method != "POST" || r.RequestURI != "/k8s/c-1"+reviewPath || r.Header["Authorization"] != nil || r.Header["X-Remote-User"] != nil {
					t.Errorf("request %s %s %v", r.Method, r.RequestURI, r.Header)
				}
				tt.handler(w, r)
			})
			v := at(transport(), base).CheckClientCert(t.Context())
			if v.Seen != tt.seen || !strings.Contains(v.Message, tt.message) {
				t.Errorf("%+v, want %s %q", v, tt.seen, tt.message)
			}
			checkCertMessage(t, v)
		})
	}
	gone := "http://127.0.0.1:1"
	if v := at(transport(), gone).CheckClientCert(t.Context()); v.Seen != SeenUnknown || !strings.Contains(v.Message, "refused") {
		t.Errorf("no server: %+v", v)
	}
}

func checkCertMessage(t *testing.T, v CertVerdict) {
	t.Helper()
	if (v.Message == "") != (v.Seen == SeenAnonymous) {
		t.Errorf("%s with message %q", v.Seen, v.Message)
	}
	if n := utf8.RuneCountInString(v.Message); n > maxMessage {
		t.Errorf("message of %d characters", n)
	}
	for _, r := range v.Message {
		if !unicode.IsPrint(r) {
			t.Errorf("message with %U", r)
		}
	}
}

// Whatever is forbidden in whatever words, only an apiserver that names no user
// but the anonymous user passes.
func FuzzForbiddenTo(f *testing.F) {
	f.Add([]byte(`{"kind":"Status","message":"User \"system:anonymous\" cannot"}`))
	f.Add([]byte(`{"kind":"Status","message":"User \"a\\\" User \\\"system:anonymous\" cannot"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v := forbiddenTo(body)
		checkCertMessage(t, v)
		if v.Seen == SeenAnonymous && !strings.Contains(string(body), "Status") {
			t.Errorf("%q passes", body)
		}
	})
}
