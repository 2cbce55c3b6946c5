package authn

import (
	"sync"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// ID-1, ID-2: what is remembered is what identity.Forward says, for the
// settings that are asked for and no other.
func TestResultForward(t *testing.T) {
	r := &Result{Identity: &identity.Identity{Name: "alice", Groups: []string{"dev"}}}
	a, b := identity.Settings{UserPrefix: "a:", GroupPrefix: "a:"}, identity.Settings{UserPrefix: "b:", GroupPrefix: "b:"}
	for _, tt := range []struct {
		settings    identity.Settings
		user, group string
	}{{a, "a:alice", "a:dev"}, {b, "b:alice", "b:dev"}, {a, "a:alice", "a:dev"}} {
		first, refusal := r.Forward(tt.settings)
		if refusal != nil || first.User != tt.user || first.Groups[0] != tt.group {
			t.Errorf("%+v: %+v, %v", tt.settings, first, refusal)
		}
		if again, _ := r.Forward(tt.settings); again != first {
			t.Error("the same settings are computed again")
		}
	}
	t.Run("refusal", func(t *testing.T) {
		r := &Result{Identity: &identity.Identity{Name: "em:root"}}
		reserved := identity.Settings{UserPrefix: "syst"}
		for range 2 {
			if f, refusal := r.Forward(reserved); f != nil || refusal == nil || refusal.Reason != identity.ReasonSystemPrefix {
				t.Errorf("%+v, %v", f, refusal)
			}
		}
		if f, refusal := r.Forward(a); refusal != nil || f.User != "a:em:root" {
			t.Errorf("%+v, %v", f, refusal)
		}
	})
	t.Run("concurrent", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				settings, want := a, "a:alice"
				if i%2 == 1 {
					settings, want = b, "b:alice"
				}
				for range 1000 {
					if f, refusal := r.Forward(settings); refusal != nil || f.User != want {
						t.Errorf("%+v, %v, want %s", f, refusal, want)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
