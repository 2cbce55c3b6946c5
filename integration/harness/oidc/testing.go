package oidc

import "testing"

// Start is New for a test, which ends with it.
func Start(tb testing.TB, o Options) *Provider {
	tb.Helper()
	p, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Stop)
	return p
}

// MustLogin is Login for a test.
func (p *Provider) MustLogin(tb testing.TB, username, clientID string, scopes ...string) *Tokens {
	tb.Helper()
	t, err := p.Login(tb.Context(), username, clientID, scopes...)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}
