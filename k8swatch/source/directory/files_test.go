package directory

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// CONF-6: a file that does not parse keeps what it last gave.
func TestDirectoryKeepsWhatAFileGave(t *testing.T) {
	const secret = "hunter2"
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	var wide strings.Builder
	fmt.Fprintf(&wide, "a: &a %s\n", strings.Repeat("x", 1<<20))
	for i := range 100 {
		fmt.Fprintf(&wide, "k%d: *a\n", i)
	}
	tests := []struct{ name, file, text, reason string }{
		{"no YAML", "a.yaml", "a: b: c\n" + secret, "mapping values are not allowed in this context"},
		{"no YAML with a line", "a.yaml", "a: 1\nb: [1\n" + secret, "line 3: did not find expected ',' or ']'"},
		{"a tab", "a.yaml", "a:\n\tb: " + secret, "line 2: found character that cannot start any token"},
		{"a key twice", "a.yaml", "a: 1\na: " + secret, `line 2: a key is there twice: "a"`},
		{"a key twice deep down", "a.yaml", "a:\n  b:\n  - c: 1\n    service: 1\n    service: 2\n", `line 5: a key is there twice: "service"`},
		{"an unusual key twice", "a.yaml", "'a " + secret + "': 1\n'a " + secret + "': 2\n", "line 2: a key is there twice"},
		{"true and 'true'", "a.yaml", "true: 1\n'true': " + secret, `a key is there twice: "true"`},
		{"an unknown anchor", "a.yaml", "password: *" + secret, "an alias names an anchor that does not exist"},
		{"a template", "a.yaml", "password: {{ " + secret + " }}", "a key is itself a mapping or a list"},
		{"a bomb of aliases", "a.yaml", bomb, "document contains excessive aliasing"},
		{"aliases of a long text", "a.yaml", wide.String(), "document 1: it holds too much, aliases repeated"},
		{"an anchor that contains itself", "a.yaml", "a: &a [*a, " + secret + "]", "is not YAML"},
		{"too deep", "a.yaml", strings.Repeat("[", 20000), "exceeded max depth of 10000"},
		{"a float as key", "a.yaml", "1.5: " + secret, "document 1: a key is no text"},
		{"not a number", "a.yaml", "a: .nan", "document 1: a number is not finite"},
		{"binary", "a.yaml", "a: !!binary /w==", "document 1: the text is not UTF-8"},
		{"a scalar", "a.yaml", secret, "document 1: is no object"},
		{"a list of objects", "a.yaml", "- a: " + secret, "document 1: is no object"},
		{"no kind", "a.yaml", "password: " + secret, "document 1: has no apiVersion and kind"},
		{"a second document that is none", "a.yaml", dirCluster("a", "https://2") + "---\n" + secret, "document 2: is no object"},
		{"an item that is no object", "a.yaml", "{apiVersion: v1, kind: List, items: [" + secret + "]}", "document 1: item 1: is no object"},
		{"an item without kind", "a.yaml", "{apiVersion: v1, kind: List, items: [{a: b}]}", "document 1: item 1: has no apiVersion and kind"},
		{"items that are no list", "a.yaml", "{apiVersion: v1, kind: List, items: {a: b}}", "document 1: the items of a List are no list"},
		{"a List with an unknown field", "a.yaml", "{apiVersion: v1, kind: List, item: []}", `document 1: a List has the unknown field "item"`},
		{"UTF-16", "a.yaml", "\xff\xfea\x00", "the text is not UTF-8"},
		{"Latin 1", "a.yaml", "# \xe9\n", "the text is not UTF-8"},
		{"a control character", "a.yaml", "a: \x01", "control characters are not allowed"},
		{"too large", "a.yaml", "#" + strings.Repeat(" ", maxFileSize), "is larger than 4 MiB"},
		{"no JSON", "a.json", "{\n\"a\": " + secret + "}", "line 2: is not JSON"},
		{"half JSON", "a.json", `{"a": "` + secret, "line 1: is not JSON"},
		{"JSON with a key twice", "a.json", `{"a": {"b": 1, "b": "` + secret + `"}}`, `document 1: a key is there twice: "a.b"`},
		{"JSON with a number that is too large", "a.json", `{"a": 1e999}`, "a number is not finite"},
		{"YAML under a JSON name", "a.json", "a: " + secret, "line 1: is not JSON"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			good := map[string]string{"a.yaml": dirCluster("a", "https://1"), "a.json": `{"apiVersion": "weebo.si.rs/v1", "kind": "ProxyKubeApi", "metadata": {"name": "a", "namespace": "team-a"}, "spec": {"service": {"ExternalService": {"url": "https://1"}}}}`}[test.file]
			rig := newDirRig(t, map[string]string{test.file: good})
			if !rig.rewrite(test.file, test.text) {
				t.Fatal("nothing changed")
			}
			if got := rig.url("a"); got != "https://1" {
				t.Errorf("in force: %q", got)
			}
			reason := rig.refusedUpdate("a")
			if !strings.HasPrefix(reason, test.file+": ") || !strings.Contains(reason, test.reason) {
				t.Errorf("UpdateRefused = %q, want %q", reason, test.reason)
			}
			if n := rig.logged(test.reason); n != 1 {
				t.Errorf("%d log lines", n)
			}
			if strings.Contains(reason, secret) || rig.logged(secret) > 0 {
				t.Errorf("a value is shown: %q", reason)
			}
			rig.rewrite(test.file, good)
			if got := rig.url("a") + rig.refusedUpdate("a"); got != "https://1" {
				t.Errorf("after the repair: %q", got)
			}
			if generation := rig.Object(dirKey("a")).ProxyKubeApi.Generation; generation != 1 {
				t.Errorf("generation %d", generation)
			}
		})
	}
}

// What is in the way of a file keeps what it last gave too, and blocks nothing:
// a FIFO would wait for ever.
func TestDirectoryWithOtherThanFiles(t *testing.T) {
	tests := []struct {
		name, reason string
		make         func(t *testing.T, path string)
	}{
		{"a folder", "is no regular file", func(t *testing.T, path string) { dirMust(t, os.Mkdir(path, 0o700)) }},
		{"a FIFO", "is no regular file", func(t *testing.T, path string) { dirMust(t, syscall.Mkfifo(path, 0o600)) }},
		{"a link to a device", "is no regular file", func(t *testing.T, path string) { dirMust(t, os.Symlink("/dev/zero", path)) }},
		{"a link to itself", "too many levels of symbolic links", func(t *testing.T, path string) { dirMust(t, os.Symlink(path, path)) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
			rig.remove("a.yaml")
			test.make(t, filepath.Join(rig.path, "a.yaml"))
			rig.settle()
			if got := rig.url("a"); got != "https://1" {
				t.Errorf("in force: %q", got)
			}
			if got := rig.refusedUpdate("a"); !strings.HasPrefix(got, "a.yaml: cannot be read: ") || !strings.Contains(got, test.reason) {
				t.Errorf("UpdateRefused = %q", got)
			}
			// From the start it gives nothing, and the others count.
			rig = newDirRig(t, map[string]string{"b.yaml": dirCluster("b", "https://b")})
			test.make(t, filepath.Join(rig.path, "a.yaml"))
			rig.settle()
			if got := rig.url("b"); got != "https://b" || rig.logged(test.reason) != 1 {
				t.Errorf("b = %q; %v", got, rig.logs.All())
			}
		})
	}
	t.Run("a FIFO that comes while the file is opened", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a.yaml")
		dirMust(t, os.WriteFile(path, nil, 0o600))
		info, err := os.Stat(path)
		dirMust(t, err)
		dirMust(t, os.Remove(path))
		dirMust(t, syscall.Mkfifo(path, 0o600))
		if _, err := readRegular(path, info); err != errNotRegular {
			t.Errorf("readRegular = %v", err)
		}
	})
	t.Run("a link to nothing is no file", func(t *testing.T) {
		rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
		rig.remove("a.yaml")
		dirMust(t, os.Symlink("nowhere", filepath.Join(rig.path, "a.yaml")))
		rig.settle()
		if rig.Object(dirKey("a")) != nil {
			t.Error("the object is still there")
		}
	})
}

// An object that cannot be told apart from one of before (its namespace was
// lost in an edit) must not delete it.
func TestDirectoryWithNamelessObjects(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1") + dirCluster("b", "https://1") + dirSecret("s", "v"), "z.yaml": dirCluster("z", "https://1")})
	rig.rewrite("a.yaml", strings.Replace(dirCluster("a", "https://2"), ", namespace: team-a", "", 1)+dirCluster("b", "https://2"))
	if got := rig.url("a") + rig.url("b") + rig.secret("s"); got != "https://1https://2v" {
		t.Errorf("in force: %q", got)
	}
	if got := rig.refusedUpdate("a"); got != "a.yaml: ProxyKubeApi a has no metadata.namespace" {
		t.Errorf("UpdateRefused = %q", got)
	}
	if got := rig.refusedUpdate("b") + rig.refusedUpdate("z"); got != "" {
		t.Errorf("UpdateRefused of others = %q", got)
	}
	rig.rewrite("a.yaml", dirCluster("b", "https://2"))
	if rig.Object(dirKey("a")) != nil || rig.secret("s") != "" {
		t.Error("still there after the repair")
	}
}

// A file counts when it has stood still: one that is being written may parse.
func TestDirectoryWaitsForWriters(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1") + dirCluster("b", "https://1")})
	both := func(want string) {
		t.Helper()
		if got := rig.url("a") + " " + rig.url("b"); got != want {
			t.Errorf("in force: %q, want %q", got, want)
		}
	}
	rig.write("a.yaml", dirCluster("a", "https://2"))
	rig.look(0)
	both("https://1 https://1")
	rig.write("a.yaml", dirCluster("a", "https://2")+dirCluster("b", "https://2"))
	rig.look(settle)
	both("https://1 https://1")
	rig.look(settle)
	both("https://2 https://2")

	rig.write("a.yaml", "")
	rig.look(0)
	rig.look(settle)
	both("https://2 https://2")
	rig.write("a.yaml", dirCluster("a", "https://3")+dirCluster("b", "https://3"))
	rig.look(settleGone)
	both("https://2 https://2")
	rig.look(settle)
	both("https://3 https://3")

	rig.remove("a.yaml")
	rig.look(0)
	rig.look(settle)
	both("https://3 https://3")
	rig.write("a.yaml", dirCluster("a", "https://3")+dirCluster("b", "https://3"))
	rig.look(settleGone)
	rig.look(settleGone)
	both("https://3 https://3")
	if n := rig.logged("object removed"); n != 0 {
		t.Errorf("%d objects were removed on the way", n)
	}
	rig.remove("a.yaml")
	rig.settle()
	both(" ")
}

// A moved file is no moment with its objects twice, nor without them.
func TestDirectoryWithAMovedFile(t *testing.T) {
	for _, names := range [][2]string{{"a.yaml", "b.yaml"}, {"b.yaml", "a.yaml"}} {
		rig := newDirRig(t, map[string]string{names[0]: dirCluster("a", "https://1")})
		uid := rig.Object(dirKey("a")).ProxyKubeApi.UID
		dirMust(t, os.Rename(filepath.Join(rig.path, names[0]), filepath.Join(rig.path, names[1])))
		for range 6 {
			if rig.look(settle / 2) {
				t.Errorf("%s to %s: something changed: %+v", names[0], names[1], rig.Object(dirKey("a")))
			}
		}
		rig.rewrite(names[1], dirCluster("a", "https://2"))
		if got := rig.Object(dirKey("a")); rig.url("a") != "https://2" || got.ProxyKubeApi.UID != uid {
			t.Errorf("%s to %s: %+v", names[0], names[1], got)
		}
		if len(rig.files) != 1 {
			t.Errorf("%s to %s: the old file is remembered", names[0], names[1])
		}
	}
}

// An unreadable directory changes nothing later (CONF-6).
func TestDirectoryGoesAway(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
	elsewhere := rig.path + "-elsewhere"
	dirMust(t, os.Rename(rig.path, elsewhere))
	for range 3 {
		if rig.settle() {
			t.Error("something changed")
		}
	}
	if got := rig.url("a"); got != "https://1" {
		t.Errorf("in force: %q", got)
	}
	if n := rig.logged("the directory is unreadable"); n != 1 {
		t.Errorf("%d log lines", n)
	}
	if rig.logged(rig.path) > 0 {
		t.Error("a path is logged")
	}
	dirMust(t, os.WriteFile(rig.path, nil, 0o600))
	if rig.settle() || rig.logged("the directory is unreadable") != 2 {
		t.Errorf("with a file in its place: %v", rig.logs.All())
	}
	dirMust(t, os.Remove(rig.path))
	dirMust(t, os.Rename(elsewhere, rig.path))
	rig.rewrite("a.yaml", dirCluster("a", "https://2"))
	if got := rig.url("a"); got != "https://2" {
		t.Errorf("back again: %q", got)
	}
}

// Names of files are the author's too: they are quoted where they would break
// a line.
func TestDirectoryQuotesNames(t *testing.T) {
	name := "a\n\x1b[31m.yaml"
	rig := newDirRig(t, map[string]string{name: dirCluster("a", "http://1")})
	if got := rig.Object(dirKey("a")).Invalid; !strings.HasPrefix(got, `"a\n\x1b[31m.yaml": spec.`) {
		t.Errorf("Invalid = %q", got)
	}
	if got := displayName(strings.Repeat("é", 300)); len(got) > 600 {
		t.Errorf("displayName has %d bytes", len(got))
	}
}

// The bytes of a file are not kept: they may be a Secret's, twice.
func TestDirectoryForgetsTexts(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirSecret("a", "v"), "b.yaml": "["})
	rig.settle()
	for name, file := range maps.All(rig.files) {
		if file.seen.text != nil || file.inForce.text != nil {
			t.Errorf("the text of %s is kept", name)
		}
	}
}
