package idp

import (
	"net/http"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// No proxy of the environment sees a credential.
func TestNoEnvironmentProxy(t *testing.T) {
	c, err := NewClient("", boundedjson.NewReader(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy is used")
	}
}
