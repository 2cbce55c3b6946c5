package caddymodule

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// SIG-4: the list is there while a configuration runs, and for GET alone.
func TestAdminListsClusters(t *testing.T) {
	for _, route := range (AdminAPI{}).Routes() {
		t.Run(route.Pattern, func(t *testing.T) { adminLists(t, route) })
	}
}

func adminLists(t *testing.T, route caddy.AdminRoute) {
	ask := func(method string) (*httptest.ResponseRecorder, int) {
		w := httptest.NewRecorder()
		err := route.Handler.ServeHTTP(w, httptest.NewRequest(method, route.Pattern, nil))
		var refused caddy.APIError
		if errors.As(err, &refused) {
			return w, refused.HTTPStatus
		}
		if err != nil {
			t.Fatal(err)
		}
		return w, w.Code
	}
	if _, code := ask(http.MethodGet); code != http.StatusServiceUnavailable {
		t.Errorf("before a configuration runs: %d", code)
	}
	run(t)
	if w, code := ask(http.MethodGet); code != http.StatusOK || w.Body.String() != "[]\n" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %q", code, w.Body)
	}
	if _, code := ask(http.MethodPost); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
}
