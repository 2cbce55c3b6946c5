package directory

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// CONF-6: an unreadable directory is an error at start.
func TestDirectoryUnreadableAtStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	dirMust(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{filepath.Join(t.TempDir(), "missing"), file, ""} {
		d, err := New(path, nil)
		dirMust(t, err)
		err = d.Run(context.Background(), func(...k8swatch.Change) { t.Error("changed was called") })
		if err == nil || !strings.HasPrefix(err.Error(), "reading the directory: ") {
			t.Errorf("Run(%q) = %v", path, err)
		}
	}
}

func TestDirectoryRunEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := t.TempDir()
	dirMust(t, os.WriteFile(filepath.Join(path, "a.yaml"), []byte(dirCluster("a", "https://1")), 0o600))
	_, stop := runDirectory(t, path)
	stop()

	// Also while it waits for the first list.
	d, err := New(path, nil)
	dirMust(t, err)
	dirMust(t, os.WriteFile(filepath.Join(path, "a.yaml"), nil, 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Run(ctx, func(...k8swatch.Change) {}); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// The first call of changed comes with the first list in memory, and calls
// never overlap.
func TestDirectoryTellsOfChanges(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	dirMust(t, os.WriteFile(filepath.Join(path, "a.yaml"), []byte(dirCluster("a", "https://0")), 0o600))
	d, err := New(path, zap.NewNop())
	dirMust(t, err)
	var inside, calls atomic.Int32
	first := make(chan string, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- d.Run(ctx, func(...k8swatch.Change) {
			if inside.Add(1) != 1 {
				t.Error("changed is called twice at a time")
			}
			if calls.Add(1) == 1 {
				first <- dirURL(d, "a")
			}
			time.Sleep(20 * time.Millisecond)
			inside.Add(-1)
		})
	}()
	if got := <-first; got != "https://0" {
		t.Errorf("at the first call: %q", got)
	}
	for i := 1; i <= 3; i++ {
		url := fmt.Sprintf("https://%d", i)
		dirMust(t, os.WriteFile(filepath.Join(path, "a.yaml"), []byte(dirCluster("a", url)), 0o600))
		dirEventually(t, url, func() bool { return dirURL(d, "a") == url })
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if calls.Load() != 4 {
		t.Errorf("%d calls for the first list and three changes", calls.Load())
	}
}

// writers are the ways in which a file comes to a new version. base is next to
// the directory.
var writers = []struct {
	name    string
	prepare func(t *testing.T, dir, base, text string)
	write   func(t *testing.T, dir, base, text string)
}{
	{"truncate and write", plainFile, func(t *testing.T, dir, _, text string) {
		dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
	}},
	{"truncate, wait and write in two steps", plainFile, func(t *testing.T, dir, _, text string) {
		file, err := os.Create(filepath.Join(dir, "a.yaml"))
		dirMust(t, err)
		time.Sleep(20 * time.Millisecond)
		_, err = file.WriteString(text[:len(text)/2])
		dirMust(t, err)
		time.Sleep(20 * time.Millisecond)
		_, err = file.WriteString(text[len(text)/2:])
		dirMust(t, err)
		dirMust(t, file.Close())
	}},
	{"write and rename", plainFile, func(t *testing.T, dir, _, text string) {
		dirMust(t, os.WriteFile(filepath.Join(dir, ".a.yaml.tmp"), []byte(text), 0o600))
		dirMust(t, os.Rename(filepath.Join(dir, ".a.yaml.tmp"), filepath.Join(dir, "a.yaml")))
	}},
	{"backup, as vim does", plainFile, func(t *testing.T, dir, _, text string) {
		dirMust(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "a.yaml~")))
		dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
		dirMust(t, os.Remove(filepath.Join(dir, "a.yaml~")))
	}},
	{"mv from elsewhere", plainFile, func(t *testing.T, dir, base, text string) {
		dirMust(t, os.WriteFile(filepath.Join(base, "new"), []byte(text), 0o600))
		dirMust(t, os.Rename(filepath.Join(base, "new"), filepath.Join(dir, "a.yaml")))
	}},
	{"the same size and times", plainFile, func(t *testing.T, dir, _, text string) {
		path := filepath.Join(dir, "a.yaml")
		info, err := os.Stat(path)
		dirMust(t, err)
		dirMust(t, os.WriteFile(path, []byte(text), 0o600))
		dirMust(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	}},
	{"the target of a link", func(t *testing.T, dir, base, text string) {
		dirMust(t, os.WriteFile(filepath.Join(base, "target"), []byte(text), 0o600))
		dirMust(t, os.Symlink(filepath.Join(base, "target"), filepath.Join(dir, "a.yaml")))
	}, func(t *testing.T, _, base, text string) {
		dirMust(t, os.WriteFile(filepath.Join(base, "target"), []byte(text), 0o600))
	}},
	{"a link that is swapped", func(t *testing.T, dir, base, text string) {
		dirMust(t, os.WriteFile(filepath.Join(base, "one"), []byte(text), 0o600))
		dirMust(t, os.Symlink(filepath.Join(base, "one"), filepath.Join(dir, "a.yaml")))
	}, func(t *testing.T, dir, base, text string) {
		dirMust(t, os.WriteFile(filepath.Join(base, "two"), []byte(text), 0o600))
		dirMust(t, os.Symlink(filepath.Join(base, "two"), filepath.Join(dir, ".link")))
		dirMust(t, os.Rename(filepath.Join(dir, ".link"), filepath.Join(dir, "a.yaml")))
	}},
	{"a volume of Kubernetes", func(t *testing.T, dir, _, text string) {
		volume(t, dir, "..1", text)
		dirMust(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	}, func(t *testing.T, dir, _, text string) {
		volume(t, dir, "..2", text)
		dirMust(t, os.RemoveAll(filepath.Join(dir, "..1")))
	}},
}

func plainFile(t *testing.T, dir, _, text string) {
	dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
}

// volume does what the kubelet does to a ConfigMap volume.
func volume(t *testing.T, dir, version, text string) {
	t.Helper()
	dirMust(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	dirMust(t, os.WriteFile(filepath.Join(dir, version, "a.yaml"), []byte(text), 0o600))
	dirMust(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	dirMust(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

// CONF-6: each way of writing counts within a second, with events and without,
// and no moment shows a half of it.
func TestDirectoryFollowsWriters(t *testing.T) {
	t.Parallel()
	for _, events := range []bool{true, false} {
		for _, writer := range writers {
			if !events && writer.name == "the same size and times" {
				continue // takes fullInterval
			}
			t.Run(fmt.Sprintf("%s, events %v", writer.name, events), func(t *testing.T) {
				t.Parallel()
				base, dir := t.TempDir(), t.TempDir()
				text := func(version int) string {
					url := fmt.Sprintf("https://%d", version)
					return dirCluster("a", url) + dirCluster("b", url)
				}
				writer.prepare(t, dir, base, text(1))
				run, _ := runDirectory(t, dir, func(d *Source) {
					if !events {
						d.newNotify = noEvents
					}
				})
				run.await("b", "https://1")
				writer.write(t, dir, base, text(2))
				run.await("b", "https://2")
				for _, version := range run.history() {
					if version["a"] == "" || version["a"] != version["b"] {
						t.Errorf("on the way: %v", run.history())
					}
				}
				if uid := run.Object(dirKey("a")).ProxyKubeApi.Generation; uid != 2 {
					t.Errorf("generation %d", uid)
				}
			})
		}
	}
}

// The directory may itself be a link that is repointed, or be replaced.
func TestDirectoryThatIsReplaced(t *testing.T) {
	t.Parallel()
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			for i := range 3 {
				dir := filepath.Join(base, fmt.Sprint(i))
				dirMust(t, os.Mkdir(dir, 0o700))
				dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(dirCluster("a", fmt.Sprintf("https://%d", i))), 0o600))
			}
			link := filepath.Join(base, "link")
			dirMust(t, os.Symlink("0", link))
			run, _ := runDirectory(t, link, func(d *Source) {
				if !events {
					d.newNotify = noEvents
				}
			})
			run.await("a", "https://0")
			dirMust(t, os.Symlink("1", link+".new"))
			dirMust(t, os.Rename(link+".new", link))
			run.await("a", "https://1")
			// The new target is followed.
			dirMust(t, os.WriteFile(filepath.Join(base, "1", "a.yaml"), []byte(dirCluster("a", "https://1b")), 0o600))
			run.await("a", "https://1b")
			// A real directory in place of the link.
			dirMust(t, os.Remove(link))
			dirMust(t, os.Rename(filepath.Join(base, "2"), link))
			run.await("a", "https://2")
			for _, version := range run.history() {
				if version["a"] == "" {
					t.Errorf("the object was gone on the way: %v", run.history())
				}
			}
		})
	}
}

// Within a second, deletion included: the best of some tries, since the
// machine may be busy.
func TestDirectoryIsFast(t *testing.T) {
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			dir := t.TempDir()
			run, _ := runDirectory(t, dir, func(d *Source) {
				if !events {
					d.newNotify = noEvents
				}
			})
			best, gone := time.Hour, time.Hour
			for i := 0; i < 5 && (best >= time.Second || gone >= time.Second); i++ {
				url := fmt.Sprintf("https://%d", i)
				dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(dirCluster("a", url)), 0o600))
				best = min(best, run.await("a", url))
				dirMust(t, os.Remove(filepath.Join(dir, "a.yaml")))
				gone = min(gone, run.await("a", ""))
			}
			if best >= time.Second || gone >= time.Second {
				t.Errorf("a new file counts after %v, a removed one after %v", best, gone)
			}
		})
	}
}

// Files that do not belong there block nothing.
func TestDirectoryWithASocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "s.yaml"))
	dirMust(t, err)
	defer listener.Close()
	dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(dirCluster("a", "https://a")), 0o600))
	run, _ := runDirectory(t, dir)
	run.await("a", "https://a")
	if n := dirLogged(run.logs, "is no regular file"); n != 1 {
		t.Errorf("%d log lines", n)
	}
}

// Without events, or with a watcher that breaks, the directory is followed all
// the same, and one line says so.
func TestDirectoryWithoutEvents(t *testing.T) {
	t.Parallel()
	t.Run("never", func(t *testing.T) {
		dir := t.TempDir()
		run, _ := runDirectory(t, dir, func(d *Source) { d.newNotify = noEvents })
		for i := range 2 {
			url := fmt.Sprintf("https://%d", i)
			dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(dirCluster("a", url)), 0o600))
			run.await("a", url)
		}
		if n := dirLogged(run.logs, errNoEvents.Error()); n != 1 {
			t.Errorf("%d log lines", n)
		}
	})
	t.Run("no longer", func(t *testing.T) {
		dir := t.TempDir()
		var notify *fsnotify.Watcher
		opened := 0
		run, _ := runDirectory(t, dir, func(d *Source) {
			d.newNotify = func() (watcher *fsnotify.Watcher, err error) {
				if opened++; opened > 1 {
					return nil, errNoEvents
				}
				notify, err = fsnotify.NewWatcher()
				return notify, err
			}
		})
		dirMust(t, notify.Close())
		dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(dirCluster("a", "https://a")), 0o600))
		run.await("a", "https://a")
	})
}

// A file that is written for ever never counts, and stops nothing else.
func TestDirectoryWithABusyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stopWriting := make(chan struct{})
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; ; i++ {
			select {
			case <-stopWriting:
				return
			case <-time.After(10 * time.Millisecond):
				_ = os.WriteFile(filepath.Join(dir, "busy.yaml"), []byte(dirCluster("busy", fmt.Sprintf("https://%d", i))), 0o600)
			}
		}
	}()
	run, _ := runDirectory(t, dir)
	dirMust(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(dirCluster("a", "https://a")), 0o600))
	run.await("a", "https://a")
	close(stopWriting)
	<-written
	dirEventually(t, "the busy file counts at rest", func() bool { return dirURL(run.Source, "busy") != "" })
}
