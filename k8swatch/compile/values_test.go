package compile

import (
	"errors"
	"strings"
	"testing"
)

// What a value may be that is sent to an identity provider. No error repeats the
// value, which may be a secret.
func TestValues(t *testing.T) {
	name := func(s string) error { return checkName(s, 8) }
	value := func(s string) error { return checkValue(s, 8) }
	for _, tt := range []struct {
		check func(string) error
		give  string
		want  error
	}{
		{name, "hunter2", nil},
		{name, "", errEmpty},
		{name, " \t", errEmpty},
		{value, "", nil},
		{value, "ééééééé8", nil},
		{value, "a\nb", errControl},
		{value, "a\xff", errNotUnicode},
		{checkScope, "", errEmpty},
		{checkScope, "openid", nil},
		{checkScope, "a b", errScopeSyntax},
		{checkScope, `a"b`, errScopeSyntax},
		{checkScope, `a\b`, errScopeSyntax},
		{checkScope, "é", errScopeSyntax},
		{checkScopes, "", nil},
		{checkScopes, "openid  profile", nil},
		{checkScopes, "openid\tprofile", errScopeSyntax},
	} {
		if err := tt.check(tt.give); !errors.Is(err, tt.want) {
			t.Errorf("%q: %v, want %v", tt.give, err, tt.want)
		}
	}
	if err := value("hunter2hunter2"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("too long: %v", err)
	}
}
