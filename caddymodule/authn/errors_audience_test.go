package authn

import (
	"errors"
	"strings"
	"testing"
)

// SIG-2: the audit log names the audience that was expected and the one received,
// printable and bounded. The caller is told neither.
func TestWrongAudienceIsAudited(t *testing.T) {
	e := wrongAudience([]string{"proxy-a"}, []string{"proxy-b\n", strings.Repeat("é", 5000), "c", "d", "e", "f"})
	want := `expected "proxy-a", received "proxy-b\n", "` + strings.Repeat("é", maxAudited) + `"..., "c", "d", 2 more`
	if e.Audited != want {
		t.Errorf("%s, want %s", e.Audited, want)
	}
	if e.Error() != errAudience.Reason {
		t.Errorf("the caller is told %q", e)
	}
	if e := wrongAudience(nil, nil); e.Audited != "expected none, received none" {
		t.Errorf("%s", e.Audited)
	}
	long := make([]string, 100_000)
	if n := len(wrongAudience(long, long).Audited); n > 200 {
		t.Errorf("%d bytes", n)
	}
}

func TestWrongAudienceOfJWTs(t *testing.T) {
	a := &jwtAuthenticators{members: []*jwtAuthenticator{
		{issuer: "https://idp", audiences: []string{"proxy-a"}}, {issuer: "https://idp", audiences: []string{"proxy-b"}}, {issuer: "https://other", audiences: []string{"x"}},
	}}
	token := new(jwt)
	token.Issuer, token.Audience = "https://idp", []string{"proxy-c"}
	_, _, refused := a.choose(token)
	if refused == nil || refused.Audited != `expected "proxy-a", "proxy-b", received "proxy-c"` {
		t.Errorf("%+v", refused)
	}
	token.Issuer = "https://nobody"
	if _, _, refused := a.choose(token); !errors.Is(refused, errUnknownIssuer) {
		t.Errorf("%+v", refused)
	}
}
