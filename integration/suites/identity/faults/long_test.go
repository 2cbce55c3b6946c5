//go:build long

package faults

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// alone is a proxy with one cluster.
func alone(t *testing.T, wayName string) (*world, *site) {
	t.Helper()
	s := openSite(t, wayTo(wayName))
	return newWorld(t, proxy.Options{LogLevel: "WARN"}, map[string]*site{"a": s}), s
}

// AUTH-12: with more than twice as many good tokens as are remembered, and 25 times as
// many bad ones, the proxy holds no more than it may with as many.
func TestLongAUTH12Storm(t *testing.T) { storm(t, 25_000, 250_000) }

// AUTH-5: three minutes of tokens with unknown kids cost one reading of the keys in
// five seconds.
func TestLongAUTH5UnknownKeys(t *testing.T) {
	t.Parallel()
	w, s := alone(t, "jwt-keys")
	began := time.Now()
	var sent atomic.Int64
	atOnce(4, func() {
		for time.Since(began) < 190*time.Second && !t.Failed() {
			w.mustRefuse(t, &bearer{cluster: "a", token: bad[0].token(s, nil), kind: bad[0].kind})
			sent.Add(1)
		}
	})
	took := time.Since(began)
	t.Logf("%d tokens of unknown keys in %v: %v", sent.Load(), took.Round(time.Second), s.idp.AllCalls())
	// The first reading is for the first token.
	if n, most := s.idp.Calls(oidc.Keys), 1+keyReads(took); n > most {
		t.Errorf("the keys were read %d times, at most %d", n, most)
	}
	w.mustServe(t, &bearer{cluster: "a", token: s.jwt(), user: oidc.Alice, kind: "token afterwards"})
}

// AUTH-5, TOK-01: a withdrawn key ends what it signed within five minutes, also
// what is remembered as good.
func TestLongAUTH5WithdrawnKey(t *testing.T) {
	t.Parallel()
	w, s := alone(t, "jwt-keys")
	token := s.jwt()
	w.mustServe(t, &bearer{cluster: "a", token: token, user: oidc.Alice, kind: "token"})
	s.idp.WithdrawKey(oidc.K1)
	took := hub.Eventually(t, "the end of a token whose key is withdrawn", 6*time.Minute, func() bool {
		time.Sleep(time.Second)
		a, err := w.ask(t.Context(), "a", token)
		if err != nil {
			t.Fatal(err)
		}
		return a.Code == http.StatusUnauthorized
	})
	t.Logf("a token ended %v after its key was withdrawn", took.Round(time.Second))
	if took > 5*time.Minute+10*time.Second {
		t.Errorf("it took %v", took)
	}
	w.mustServe(t, &bearer{cluster: "a", token: s.idp.Mint(s.idp.Claims(oidc.Alice, nil), oidc.Sign{KeyID: oidc.E1}), user: oidc.Alice, kind: "token of another key"})
}
