package directory

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A file that may not be read says as which user the proxy tried.
func TestUnreadableFileNamesTheUser(t *testing.T) {
	r := failedReading(&fs.PathError{Op: "open", Path: "/secret/folder/a.yaml", Err: fs.ErrPermission})
	want := "uid " + strconv.Itoa(os.Geteuid())
	if u, err := user.Current(); err == nil {
		want = "user " + u.Username + ", " + want
	}
	if r.absent || r.problem != "cannot be read: permission denied (the proxy runs as "+want+")" {
		t.Errorf("%+v", r)
	}
	if r := failedReading(&fs.PathError{Op: "open", Path: "a.yaml", Err: fs.ErrInvalid}); strings.Contains(r.problem, "runs as") {
		t.Errorf("%+v", r)
	}
}

// SIG-4: the files that give nothing, until they do again.
func TestRefusedFiles(t *testing.T) {
	r := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://a:1"), "b.yaml": "a: b: c\n"})
	files := func() string {
		var names []string
		for _, f := range r.RefusedFiles() {
			if f.Reason == "" || strings.Contains(f.Reason, "\n") {
				t.Errorf("%+v", f)
			}
			names = append(names, f.File)
		}
		return strings.Join(names, " ")
	}
	if got := files(); got != "b.yaml" {
		t.Errorf("%q", got)
	}
	r.write("a.yaml", "---\napiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\nmetadata: {}\n")
	r.write("c\n.yaml", "[")
	r.settle()
	if diff := cmp.Diff(`a.yaml b.yaml "c\n.yaml"`, files()); diff != "" {
		t.Error(diff)
	}
	r.write("a.yaml", dirCluster("a", "https://a:2"))
	r.write("b.yaml", "")
	r.remove("c\n.yaml")
	r.settle()
	if got := files(); got != "" {
		t.Errorf("%q", got)
	}
}
