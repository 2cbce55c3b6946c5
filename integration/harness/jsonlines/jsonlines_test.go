package jsonlines

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := Open[int](path)
	want := func(want ...int) {
		t.Helper()
		if got, err := f.All(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	write := func(flag int, text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	want() // there is no file
	write(0, "1\n2\n3")
	want(1, 2) // a line is being written
	write(os.O_APPEND, "4\n")
	want(1, 2, 34)
	all, err := f.All()
	if err != nil {
		t.Fatal(err)
	}
	all[0] = 7
	want(1, 2, 34)
	write(os.O_TRUNC, "5\n")
	want(5)
	write(os.O_APPEND, "no number\n")
	if _, err := f.All(); err == nil {
		t.Error("a line that is no JSON was read")
	}
}
