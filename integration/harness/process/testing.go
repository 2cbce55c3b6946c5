package process

import (
	"os"
	"testing"
)

// NeedRoot skips a test that this process has too few rights for. With CI=true
// the test fails instead: there no test may be skipped.
func NeedRoot(tb testing.TB, what string) {
	tb.Helper()
	needRoot(tb, what, os.Geteuid(), os.Getenv("CI"))
}

func needRoot(tb testing.TB, what string, uid int, ci string) {
	tb.Helper()
	if uid == 0 {
		return
	}
	message := what + " needs root: run this test as root"
	if ci == "true" {
		tb.Fatal(message)
	} else {
		tb.Skip(message)
	}
}
