package realtools

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDebian runs a stand-in for apt-get that notes how it is called and
// brings the files of one package.
func TestDebian(t *testing.T) {
	if os.Geteuid() != 0 {
		if err := Debian(t.Context(), io.Discard, DebianPackage{Name: "odd", File: "no-such-program"}); !errors.Is(err, errNotRoot) {
			t.Errorf("without root: %v", err)
		}
		return
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$*\" >>" + dir + "/calls\ncase $* in *' good'*) : >" + dir + "/good ;; *broken*) echo no such package; exit 100 ;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("PROXYAUTH_CACHE", t.TempDir())
	shell := DebianPackage{Name: "dash", File: "sh"}
	tests := []struct {
		name     string
		packages []DebianPackage
		calls    string // of apt-get, without the options in front
		err      string
	}{
		{"nothing to do", []DebianPackage{shell}, "", ""},
		{"one of two", []DebianPackage{shell, {Name: "good", File: dir + "/good"}}, "update\ninstall -y --no-install-recommends good\n", ""},
		{"again", []DebianPackage{shell, {Name: "good", File: dir + "/good"}}, "", ""},
		{"a failure", []DebianPackage{{Name: "broken", File: "no-such-program"}}, "update\ninstall -y --no-install-recommends broken\n", "no such package"},
		{"another file", []DebianPackage{{Name: "odd", File: "no-such-program"}}, "update\ninstall -y --no-install-recommends odd\n", "odd did not bring"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_ = os.Remove(filepath.Join(dir, "calls"))
			var progress bytes.Buffer
			err := Debian(t.Context(), &progress, tc.packages...)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			if got := strings.ReplaceAll(string(calls), "-q -o DPkg::Lock::Timeout=300 ", ""); got != tc.calls {
				t.Errorf("apt-get was called\n%s\nwant\n%s", got, tc.calls)
			}
			if said := progress.Len() > 0; said != (tc.calls != "") {
				t.Errorf("progress: %q", progress.String())
			}
		})
	}
}
