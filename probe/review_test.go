package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const callersToken = "token-of-a-caller"

// AUTH-8: the review sends the caller's token, and no other credential.
func TestReviewRequest(t *testing.T) {
	base := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != "POST" || r.RequestURI != "/k8s/c-1"+reviewPath || string(body) != review {
			t.Errorf("%s %s %s", r.Method, r.RequestURI, body)
		}
		got := map[string][]string(r.Header.Clone())
		delete(got, "Content-Length")
		delete(got, "Accept-Encoding") // that of the transport in this test
		delete(got, "Connection")
		want := map[string][]string{
			"Authorization": {"Bearer " + callersToken}, "Accept": {"application/json"},
			"Content-Type": {"application/json"}, "User-Agent": {ReviewAgent},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		answer(w, 201, "alice", "1", []string{"dev", "system:authenticated"}, map[string][]string{"k": {"v"}})
	})
	got, code, err := at(transport(), base).Review(t.Context(), callersToken)
	want := Subject{Name: "alice", Groups: []string{"dev", "system:authenticated"}}
	if diff := cmp.Diff(want, got); err != nil || code != 201 || diff != "" {
		t.Errorf("%d %v %s", code, err, diff)
	}
}

// AUTH-8: only the user that a SelfSubjectReview names is one.
func TestReviewAnswers(t *testing.T) {
	text := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code); io.WriteString(w, body) }
	}
	named := func(code int, name string, groups ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { answer(w, code, name, "", groups, nil) }
	}
	var followed atomic.Bool
	tests := map[string]struct {
		handler http.HandlerFunc
		code    int
		err     error
	}{
		"401":                    {text(401, "{}"), 401, nil},
		"403":                    {func(w http.ResponseWriter, r *http.Request) { forbid(w, "alice") }, 403, nil},
		"404":                    {text(404, ""), 404, nil},
		"429":                    {text(429, ""), 429, nil},
		"500":                    {text(500, ""), 500, nil},
		"a name with 200":        {named(200, "alice"), 200, nil},
		"no name":                {named(201, "", "dev"), 201, ErrNoReview},
		"anonymous":              {named(201, "system:anonymous", "system:unauthenticated"), 201, ErrAnonymous},
		"anonymous by its group": {named(201, "alice", "dev", "system:unauthenticated"), 201, ErrAnonymous},
		"no JSON":                {text(201, "<html>alice"), 201, ErrNoReview},
		"empty":                  {text(201, ""), 201, ErrNoReview},
		"another kind":           {text(201, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"user":{"username":"alice"}}}`), 201, ErrNoReview},
		"another version":        {text(201, `{"apiVersion":"authentication.k8s.io/v1beta1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"alice"}}}`), 201, ErrNoReview},
		"a name that is a list":  {text(201, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":["alice"]}}}`), 201, ErrNoReview},
		"no UTF-8":               {text(201, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"alice`+"\xff"+`"}}}`), 201, ErrNoReview},
		"too many members":       {text(201, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"alice","extra":{"x":null`+members(1000)+`}}}}`), 201, ErrNoReview},
		"too many groups":        {text(201, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"alice","groups":[""`+strings.Repeat(`,""`, 100_000)+`]}}}`), 201, ErrNoReview},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, 201, ErrNoReview},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			followed.Store(followed.Load() || r.URL.Path == "/elsewhere")
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, 307, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, code, err := at(transport(), server(t, tt.handler)).Review(t.Context(), callersToken)
			if code != tt.code || !errors.Is(err, tt.err) || got.Name != "" || got.Groups != nil {
				t.Errorf("%+v, %d, %v", got, code, err)
			}
		})
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
}

// Whatever an apiserver sends, an answer that counts names a user.
func FuzzSubjectOf(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"a","groups":["b"]}}}`))
	f.Add([]byte(`{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"system:anonymous"}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := subjectOf(body)
		if err == nil && (s.Name == "" || s.Name == anonymous || slices.Contains(s.Groups, unauthenticated)) {
			t.Errorf("%q is %+v", body, s)
		}
	})
}

// An apiserver that says nothing, or not the rest, is an error and no verdict.
func TestReviewWithoutAnAnswer(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"nothing": func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // only then the server sees that the client left
			<-r.Context().Done()
		},
		"half a review": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(201)
			io.WriteString(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"alice"`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"a closed connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			got, code, err := at(transport(), server(t, handler)).Review(ctx, callersToken)
			if err == nil || code != 0 || got.Name != "" || strings.Contains(err.Error(), callersToken) {
				t.Errorf("%+v, %d, %v", got, code, err)
			}
		})
	}
}

// members are so many of an object, each after a comma.
func members(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":null`, i)
	}
	return b.String()
}
