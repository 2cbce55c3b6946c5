package faults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// TOK-01, AUTH-5: the first token that a new key signed is good at once, at the
// price of one reading of the keys, whatever validates it. Tokens of the old key
// go on.
func TestTOK01RotatedKeys(t *testing.T) {
	t.Parallel()
	sites := map[string]*site{}
	for _, name := range []string{"jwt-keys", "oidc-keys", "exchange"} {
		sites[name] = openSite(t, wayTo(name))
	}
	w := newWorld(t, proxy.Options{}, sites)
	for name, s := range sites {
		t.Run(name, func(t *testing.T) {
			fresh := func(kind string) *bearer {
				return &bearer{cluster: name, token: s.token(s), user: s.user, kind: kind}
			}
			old, unseen := fresh("token of the old key"), fresh("unseen token of the old key")
			w.mustServe(t, old)
			if n := s.idp.Calls(oidc.Keys); n != 1 {
				t.Errorf("the keys were read %d times", n)
			}
			if err := s.idp.AddKey("k2", jose.ES256); err != nil {
				t.Fatal(err)
			}
			s.idp.UseKey("k2")
			w.mustServe(t, fresh("token of the new key"))
			w.mustServe(t, fresh("second token of the new key"))
			w.mustServe(t, old)
			w.mustServe(t, unseen)
			if n := s.idp.Calls(oidc.Keys); n != 2 {
				t.Errorf("after the rotation the keys were read %d times", n)
			}
		})
	}
}

// TOK-01, AUTH-5: while strangers send tokens with unknown kids, a key that the
// issuer begins to use is found within seconds, and the strangers have the keys read
// no more often than they may.
func TestTOK01RotationAmongStrangers(t *testing.T) {
	s := openSite(t, wayTo("jwt-keys"))
	w := newWorld(t, proxy.Options{}, map[string]*site{"a": s})
	w.mustServe(t, &bearer{cluster: "a", token: s.token(s), user: s.user, kind: "token of the old key"})

	began, reads := time.Now(), s.idp.Calls(oidc.Keys)
	ctx, stop := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	for range 4 {
		strangers.Go(func() {
			for ctx.Err() == nil {
				w.mustRefuse(t, &bearer{cluster: "a", token: bad[0].token(s, nil), kind: bad[0].kind})
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for _, kid := range []string{"k2", "k3"} {
		if err := s.idp.AddKey(kid, jose.ES256); err != nil {
			t.Fatal(err)
		}
		s.idp.UseKey(kid)
		rotated, token := time.Now(), s.token(s)
		for good := false; !good; {
			a, err := w.ask(t.Context(), "a", token)
			if err != nil {
				t.Fatal(err)
			}
			good = a.good(s.user) == nil
			if time.Since(rotated) > unknownKeyPause+noHang {
				t.Fatalf("%s is not known after %v: code %d, %s", kid, time.Since(rotated), a.Code, a.text())
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("%s was found after %v", kid, time.Since(rotated).Round(time.Millisecond))
	}
	stop()
	strangers.Wait()
	if n, most := s.idp.Calls(oidc.Keys)-reads, keyReads(time.Since(began)); n > most {
		t.Errorf("the keys were read %d times in %v, at most %d", n, time.Since(began), most)
	}
}
