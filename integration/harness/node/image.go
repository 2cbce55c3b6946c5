package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Image is a container image of one layer.
type Image struct {
	// Name with its tag, as pods give it, and Others, under which it is also
	// found.
	Name   string
	Others []string
	// Files are copied from this machine with their permissions: path in the
	// image to path here. Texts are files with that content, Links symbolic
	// links: path in the image to target.
	Files, Texts, Links map[string]string
	// Folders are empty folders that belong to User, which then is numeric:
	// <uid>:<gid>.
	Folders []string
	// Entrypoint, Cmd, Env (KEY=value), User and WorkingDir are those of the
	// image's configuration.
	Entrypoint, Cmd, Env []string
	User, WorkingDir     string
}

// AddImage gives an image to the node.
func (n *Node) AddImage(ctx context.Context, image Image) error {
	file, err := os.CreateTemp(n.dir, "image-")
	if err != nil {
		return fmt.Errorf("making the image %s: %w", image.Name, err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := image.write(file); err != nil {
		return fmt.Errorf("making the image %s: %w", image.Name, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("making the image %s: %w", image.Name, err)
	}
	return n.ctr(ctx, "images", "import", "--snapshotter="+n.snapshotter, file.Name())
}

// write writes the image in the format of docker save.
func (i *Image) write(w io.Writer) error {
	var layer bytes.Buffer
	if err := i.writeLayer(&layer); err != nil {
		return err
	}
	digest := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Entrypoint": i.Entrypoint, "Cmd": i.Cmd, "Env": i.Env, "User": i.User, "WorkingDir": i.WorkingDir,
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": append([]string{i.Name}, i.Others...), "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, part := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer.Bytes()}} {
		if err := archive.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.content))}); err != nil {
			return err
		}
		if _, err := archive.Write(part.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (i *Image) writeLayer(w io.Writer) error {
	layer := tar.NewWriter(w)
	if err := i.writeFolders(layer); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		if err := copyFile(layer, name, i.Files[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Texts)) {
		if err := layer.WriteHeader(&tar.Header{Name: inTar(name), Mode: 0o644, Size: int64(len(i.Texts[name]))}); err != nil {
			return err
		}
		if _, err := io.WriteString(layer, i.Texts[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Links)) {
		if err := layer.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: inTar(name), Linkname: i.Links[name], Mode: 0o777}); err != nil {
			return err
		}
	}
	return layer.Close()
}

// writeFolders writes /tmp, the folders of all files and those of the user,
// parents first.
func (i *Image) writeFolders(layer *tar.Writer) error {
	folders := map[string]*tar.Header{"/tmp": {Mode: 0o1777}}
	for _, name := range i.Folders {
		h := &tar.Header{Mode: 0o755}
		if _, err := fmt.Sscanf(i.User, "%d:%d", &h.Uid, &h.Gid); err != nil {
			return fmt.Errorf("reading the user %q: %w", i.User, err)
		}
		folders[name] = h
	}
	for _, names := range []iter.Seq[string]{maps.Keys(i.Files), maps.Keys(i.Texts), maps.Keys(i.Links), slices.Values(i.Folders)} {
		for name := range names {
			for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
				if folders[dir] == nil {
					folders[dir] = &tar.Header{Mode: 0o755}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		h := folders[name]
		h.Typeflag, h.Name = tar.TypeDir, inTar(name)+"/"
		if err := layer.WriteHeader(h); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(layer *tar.Writer, name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := layer.WriteHeader(&tar.Header{Name: inTar(name), Mode: int64(info.Mode().Perm()), Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(layer, f)
	return err
}

func inTar(name string) string { return strings.TrimPrefix(name, "/") }
