package directory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// maxFileSize bounds one file, in bytes.
const maxFileSize = 4 << 20

// racy is how long after its last change the content of a file is read again
// even if its size and times stay the same: times have a resolution.
const racy = 2 * time.Second

var errTooLarge = fmt.Errorf("is larger than %d MiB", maxFileSize>>20)

// reading is the result of reading a file: its bytes, or that it does not exist,
// or why it cannot be read.
type reading struct {
	absent  bool
	problem string
	sum     [sha256.Size]byte
	empty   bool
	text    []byte
}

func (r reading) same(other reading) bool {
	return r.absent == other.absent && r.problem == other.problem && r.sum == other.sum
}

// fileState follows one file of the directory.
type fileState struct {
	name string
	// info is the state of the file before its content was last read. It is nil
	// when the content must be read again in any case.
	info os.FileInfo
	// seen is the last reading, and since is when it first gave that result.
	seen  reading
	since time.Time
	// inForce is the reading that content and problem come from.
	inForce reading
	// content is what the file last gave when it could be parsed, nil before.
	content *fileContent
	// problem is why the file as it is now gives nothing.
	problem string
}

// observe notes a reading.
func (f *fileState) observe(r reading, now time.Time) {
	if !r.same(f.seen) || f.since.IsZero() {
		f.since = now
	}
	f.seen = r
}

// pending says whether the file changed since what is in force.
func (f *fileState) pending() bool { return !f.seen.same(f.inForce) }

// listDirectory lists the names that may hold objects: visible, with a known
// ending. It follows a symbolic link to the directory.
func listDirectory(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if mayHoldObjects(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

func mayHoldObjects(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// look reads the file again, unless it surely did not change.
func (f *fileState) look(directory string, now time.Time, fully bool) {
	path := filepath.Join(directory, f.name)
	info, err := os.Stat(path)
	if err != nil {
		f.info = nil
		f.observe(failedReading(err), now)
		return
	}
	if !fully && f.info != nil && unchanged(f.info, info) && now.Sub(info.ModTime()) > racy {
		f.observe(f.seen, now)
		return
	}
	text, err := readRegular(path, info)
	if err != nil {
		f.info = nil
		f.observe(failedReading(err), now)
		return
	}
	f.info = info
	f.observe(reading{sum: sha256.Sum256(text), empty: len(text) == 0, text: text}, now)
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// failedReading takes a file that is not there, or a link to nothing, as
// removed. Whatever else cannot be read keeps what it last gave.
func failedReading(err error) reading {
	if errors.Is(err, fs.ErrNotExist) {
		return reading{absent: true}
	}
	return reading{problem: pathless(err)}
}

// pathless takes the path out of an error: messages name the base name alone.
func pathless(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	problem := "cannot be read: " + err.Error()
	if errors.Is(err, fs.ErrPermission) {
		problem += " (the proxy runs as " + whoami() + ")"
	}
	return problem
}

// whoami is the user that this process runs as.
func whoami() string {
	id := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("user %s, uid %s", text.OneLine(u.Username, k8swatch.MaxQuoted), id)
	}
	return "uid " + id
}

var errNotRegular = errors.New("is no regular file")

// readRegular reads a file of bounded size. It opens without blocking and looks
// at what it opened: a FIFO would otherwise wait for a writer for ever.
func readRegular(path string, info os.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	if info.Size() > maxFileSize {
		return nil, errTooLarge
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileSize {
		return nil, errTooLarge
	}
	return text, nil
}

// displayName is a file name as messages show it.
func displayName(name string) string {
	if quote := strconv.Quote(name); quote != `"`+name+`"` || len(name) > k8swatch.MaxQuoted {
		return text.Quote(name, k8swatch.MaxQuoted)
	}
	return name
}
