package request

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// ANS-1: every answer is a v1 Status with its code, reason and message, the
// same message as a warning, and a challenge on 401.
func TestRefusalWritesStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		refused *Refusal
		header  map[string]string
		absent  []string
	}{
		"404": {
			refused: unknownCluster,
			header:  map[string]string{"Warning": `299 - "proxyauth: the proxy has no such cluster"`},
			absent:  []string{"WWW-Authenticate", "Retry-After"},
		},
		"401 carries a challenge": {
			refused: refuse(http.StatusUnauthorized, unauthorizedReason, "no_credential", "no bearer token was sent"),
			header:  map[string]string{"WWW-Authenticate": "Bearer"},
			absent:  []string{"Retry-After"},
		},
		"503 never carries Retry-After (ANS-2)": {
			refused: unavailable("not_synced", "the proxy has not read its clusters yet"),
			absent:  []string{"Retry-After", "WWW-Authenticate"},
		},
		"405 lists methods": {
			refused: methodNotAllowed,
			header:  map[string]string{"Allow": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"},
		},
		"message with quotes": {
			refused: refuse(http.StatusForbidden, forbiddenReason, "x", `not a member of group a"b\c é`),
			header:  map[string]string{"Warning": `299 - "proxyauth: not a member of group a\"b\\c ?"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body"))
			if err := tc.refused.Write(w, r); err != nil {
				t.Fatal(err)
			}
			var status metav1.Status
			if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
				t.Fatalf("body is no Status: %v", err)
			}
			if w.Code != tc.refused.Code || int(status.Code) != w.Code || status.Kind != "Status" ||
				status.APIVersion != "v1" || status.Status != "Failure" || status.Message != tc.refused.Message || status.Reason == "" {
				t.Errorf("code %d, Status %+v", w.Code, status)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
			for k, want := range tc.header {
				if got := w.Header().Get(k); got != want {
					t.Errorf("%s: %q, want %q", k, got, want)
				}
			}
			for _, k := range tc.absent {
				if got, ok := w.Header()[http.CanonicalHeaderKey(k)]; ok {
					t.Errorf("%s: %q, want none", k, got)
				}
			}
			if got := w.Header().Get("Connection"); got != "close" {
				t.Errorf("an HTTP/1.1 connection with an unread body is kept: Connection %q", got)
			}
		})
	}
}

// ANS-2: Retry-After goes out with a 429, in whole seconds, and never with
// another code: client-go would repeat a 503 ten times.
func TestRetryAfterOnlyOn429(t *testing.T) {
	for after, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", time.Second: "1", 1500 * time.Millisecond: "2", time.Minute: "60"} {
		w := httptest.NewRecorder()
		if err := TooManyRequests("quota", "too many requests", after).Write(w, httptest.NewRequest(http.MethodGet, "/", nil)); err != nil {
			t.Fatal(err)
		}
		if got := w.Header().Get("Retry-After"); w.Code != http.StatusTooManyRequests || got != want {
			t.Errorf("%v: %d with Retry-After %q, want %q", after, w.Code, got, want)
		}
	}
	for code := 400; code < 600; code++ {
		h := http.Header{}
		(&Refusal{Code: code, RetryAfter: time.Minute}).header(h, 0)
		if got := h.Get("Retry-After"); (got != "") != (code == http.StatusTooManyRequests) {
			t.Errorf("%d with Retry-After %q", code, got)
		}
	}
}

// ANS-1: a warning is printable ASCII, quoted rightly and at most 512 bytes,
// whatever the message holds.
func TestWarningIsAlwaysWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := warning(rapid.String().Draw(t, "message"))
		if len(got) > maxWarning {
			t.Fatalf("%d bytes", len(got))
		}
		rest, ok := strings.CutPrefix(got, `299 - "proxyauth: `)
		if !ok || !strings.HasSuffix(rest, `"`) {
			t.Fatalf("%q", got)
		}
		rest = strings.TrimSuffix(rest, `"`)
		for i := 0; i < len(rest); i++ {
			switch c := rest[i]; {
			case c < 0x20 || c > 0x7e:
				t.Fatalf("byte %#x in %q", c, got)
			case c == '"':
				t.Fatalf("bare quote in %q", got)
			case c == '\\':
				if i++; i == len(rest) || rest[i] != '"' && rest[i] != '\\' {
					t.Fatalf("bare backslash in %q", got)
				}
			}
		}
	})
}
