package process

import "testing"

// ending keeps how a test would have ended.
type ending struct {
	testing.TB
	how string
}

func (e *ending) Helper()      {}
func (e *ending) Fatal(...any) { e.how += "fails" }
func (e *ending) Skip(...any)  { e.how += "skipped" }

// A skipped test is a failure in CI, which runs as root.
func TestNeedRoot(t *testing.T) {
	for _, tc := range []struct {
		uid      int
		ci, want string
	}{
		{uid: 0, ci: "true"},
		{uid: 0},
		{uid: 1000, ci: "true", want: "fails"},
		{uid: 1000, want: "skipped"},
	} {
		e := &ending{TB: t}
		needRoot(e, "this", tc.uid, tc.ci)
		if e.how != tc.want {
			t.Errorf("as user %d with CI=%q it is %q, want %q", tc.uid, tc.ci, e.how, tc.want)
		}
	}
}
