package node

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestImage reads an image as containerd does.
func TestImage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	image := Image{
		Name: "some:test", Others: []string{"other:test"}, User: "65532:65533", Entrypoint: []string{"/usr/bin/program"}, Env: []string{"A=b"},
		Files:   map[string]string{"/usr/bin/program": program},
		Texts:   map[string]string{"/etc/some/text": "hello"},
		Links:   map[string]string{"/bin/link": "/usr/bin/program"},
		Folders: []string{"/data/own"},
	}
	var archive bytes.Buffer
	if err := image.write(&archive); err != nil {
		t.Fatal(err)
	}
	parts := map[string][]byte{}
	each(t, &archive, func(h *tar.Header, content []byte) { parts[h.Name] = content })

	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(parts["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || !cmp.Equal(manifest[0].RepoTags, []string{"some:test", "other:test"}) || len(manifest[0].Layers) != 1 {
		t.Fatalf("manifest %+v", manifest)
	}
	var config struct {
		Config struct {
			User            string
			Entrypoint, Env []string
		}
	}
	if err := json.Unmarshal(parts[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	if config.Config.User != image.User || !cmp.Equal(config.Config.Entrypoint, image.Entrypoint) || !cmp.Equal(config.Config.Env, image.Env) {
		t.Errorf("config %+v", config.Config)
	}
	var got []string
	each(t, bytes.NewReader(parts[manifest[0].Layers[0]]), func(h *tar.Header, content []byte) {
		got = append(got, fmt.Sprintf("%s %o %d:%d %s%s", h.Name, h.Mode, h.Uid, h.Gid, h.Linkname, content))
	})
	want := []string{
		"bin/ 755 0:0 ", "data/ 755 0:0 ", "data/own/ 755 65532:65533 ", "etc/ 755 0:0 ", "etc/some/ 755 0:0 ",
		"tmp/ 1777 0:0 ", "usr/ 755 0:0 ", "usr/bin/ 755 0:0 ",
		"usr/bin/program 755 0:0 binary", "etc/some/text 644 0:0 hello", "bin/link 777 0:0 /usr/bin/program",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}

	image.User = "nobody"
	if err := image.write(io.Discard); err == nil {
		t.Error("folders of a user without a number were made")
	}
}

func each(t *testing.T, archive io.Reader, f func(*tar.Header, []byte)) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		f(h, content)
	}
}
