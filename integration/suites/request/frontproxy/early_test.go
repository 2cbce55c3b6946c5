package frontproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// ANS-3, RELAY-3: RBAC refuses a write without reading it. The refusal ends at
// once for a client that waits for it before it sends the body, as net/http,
// and so kubectl, does when the refusal is there first.
func TestRELAY3EarlyRefusalEnds(t *testing.T) {
	w := get(t)
	const path = "/clusters/" + ns + "/prod/api/v1/namespaces/default/configmaps"
	token := w.idp.Token(oidc.Elodie, nil)
	// Caddy gives up an idle body after 60 s.
	const soon = 20 * time.Second
	check := func(t *testing.T, began time.Time, code int, body io.Reader) {
		t.Helper()
		text, err := io.ReadAll(body)
		if took := time.Since(began); err != nil || took > soon || code != http.StatusForbidden || !strings.Contains(string(text), `"proxyauth:élodie\" cannot create`) {
			t.Errorf("%d %s, %v after %v", code, text, err, took)
		}
	}
	t.Run("h2", func(t *testing.T) {
		c := rawclient.MustDialH2(t, w.px.Host, w.px.CA.Pool())
		began := time.Now()
		stream, err := c.Open(rawclient.Fields("POST", w.px.Host, path,
			rawclient.Field{Name: "authorization", Value: "Bearer " + token},
			rawclient.Field{Name: "content-type", Value: "application/json"},
			rawclient.Field{Name: "content-length", Value: "1000"}), false)
		if err != nil {
			t.Fatal(err)
		}
		code, _, err := stream.Head()
		if err != nil {
			t.Fatal(err)
		}
		check(t, began, code, stream)
	})
	t.Run("h1", func(t *testing.T) {
		c := rawclient.MustDial(t, w.px.Host, w.px.CA.Pool())
		began := time.Now()
		if err := c.Send(rawclient.Request("POST", path, w.px.Host, "Authorization: Bearer "+token, "Content-Type: application/json", "Content-Length: 1000")); err != nil {
			t.Fatal(err)
		}
		resp, err := c.Head("POST")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(2 * soon))
		check(t, began, resp.StatusCode, resp.Body)
	})
}
