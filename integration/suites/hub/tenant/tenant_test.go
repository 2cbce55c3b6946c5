package tenant

import "testing"

// One hub and one proxy for all attacks: what one of them leaves behind is what
// the next one finds.
func TestTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, attack := range []struct {
		name string
		run  func(*world)
	}{
		{"who the tenant is", whoTheTenantIs},
		{"references", references},
		{"a label that comes", labelThatComes},
		{"names", names},
		{"a default group", defaultGroup},
		{"repointing", repointing},
		{"spellings of a URL", spellings},
		{"prefixes", prefixes},
		{"Services", services},
		{"stalling", stalling},
		{"lying", lying},
		{"deletion", deletion},
		{"a finalizer", finalizer},
		{"made anew", madeAnew},
		{"a forged status", forgedStatus},
		{"a mode", mode},
		{"odd objects", oddObjects},
		{"expressions", expressions},
		{"a real apiserver", realTarget},
		{"two hundred clusters", crowd},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s := w.sub(t)
			attack.run(s)
			s.othersServe()
		})
	}
	w.nothingTold(whispered...)
	w.hub.MustNotHaveBeenForbidden(t)
}
