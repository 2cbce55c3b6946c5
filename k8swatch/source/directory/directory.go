package directory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// These times make a change count within a second (CONF-6).
const (
	// pollInterval is how often the directory is read without an event. Events do
	// not come for the targets of symbolic links, nor from every file system.
	pollInterval = 400 * time.Millisecond
	// eventDelay lets the events of one change come together.
	eventDelay = 50 * time.Millisecond
	// settle is how long a file must stay unchanged before it counts: a file that
	// is being written may parse, and lack its last lines.
	settle = 250 * time.Millisecond
	// settleGone is the same for a file that is gone or empty, which deletes
	// objects: editors and copies empty a file before they fill it.
	settleGone = 500 * time.Millisecond
	// fullInterval is how often contents are read whatever the times of the
	// files say.
	fullInterval = 10 * time.Second
	// firstWait bounds how long the first list waits for files that change.
	firstWait = time.Second
)

// Source follows the objects in the files of a directory (CONF-6): *.yaml, *.yml and
// *.json, without those whose name begins with a dot, and without subfolders.
//
// What it returns is shared and must not be changed.
type Source struct {
	path      string
	logger    *zap.Logger
	validator *admission.Validator
	newNotify func() (*fsnotify.Watcher, error)

	// Run alone touches these.
	files    map[string]*fileState
	records  map[objectID]*record
	made     map[objectID]int
	revision int64
	readAll  time.Time // when all contents were last read
	listing  string    // why the directory cannot be read

	current atomic.Pointer[snapshot]
	refused atomic.Pointer[[]RefusedFile]
}

// snapshot is what a Source answers from. It is never changed once it is published.
type snapshot struct {
	keys       []k8swatch.Key
	objects    map[k8swatch.Key]*k8swatch.Object
	secrets    map[k8swatch.Key]*corev1.Secret
	configMaps map[k8swatch.Key]*corev1.ConfigMap
}

var _ k8swatch.Source = (*Source)(nil)

// New returns the source of the objects in the directory at path,
// which may be a symbolic link. It reads nothing before Run. The logger may be
// nil. An error means that this program is broken.
func New(path string, logger *zap.Logger) (*Source, error) {
	validator, err := admission.Default()
	if err != nil {
		return nil, fmt.Errorf("preparing admission: %w", err)
	}
	if logger == nil {
		logger = zap.NewNop()
	}
	return &Source{
		path:      path,
		logger:    logger,
		validator: validator,
		newNotify: fsnotify.NewWatcher,
		files:     map[string]*fileState{},
		records:   map[objectID]*record{},
		made:      map[objectID]int{},
	}, nil
}

// Run follows the directory until ctx ends, and then returns nil. It is called
// once. See Source; the error is that the directory cannot be read.
func (d *Source) Run(ctx context.Context, changed func(...k8swatch.Change)) error {
	watch := newNotifier(d.path, d.newNotify, d.logger)
	defer watch.close()

	if ok, err := d.first(ctx); !ok {
		return err
	}
	changed()

	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	next := time.Now().Add(pollInterval)
	fully := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-watch.events():
			if !open {
				watch.close()
			} else if !d.concerns(event.Name, &fully) {
				continue
			}
			if soon := time.Now().Add(eventDelay); soon.Before(next) {
				next = soon
				timer.Reset(eventDelay)
			}
			continue
		case err := <-watch.errors():
			if err != nil {
				watch.fail(err)
				fully = true
			}
			continue
		case <-timer.C:
		}
		watch.follow()
		now := time.Now()
		wait := pollInterval
		if d.scan(now, fully) {
			if d.apply(now, false) {
				changed()
			}
			wait = d.due(now)
		}
		fully = false
		next = now.Add(wait)
		timer.Reset(wait)
	}
}

// concerns says whether an event is about a file that counts, which is then
// read again whatever its times say, or about something behind all of them: a
// volume of Kubernetes swaps the link ..data.
func (d *Source) concerns(path string, fully *bool) bool {
	name := filepath.Base(path)
	if strings.HasPrefix(name, "..") {
		*fully = true
		return true
	}
	if file := d.files[name]; file != nil {
		file.info = nil
	}
	return mayHoldObjects(name)
}

// first makes the first list. Files that change while it reads are waited for,
// but not for long.
func (d *Source) first(ctx context.Context) (ok bool, err error) {
	start := time.Now()
	for {
		now := time.Now()
		names, err := listDirectory(d.path)
		if err != nil {
			return false, fmt.Errorf("reading the directory: %w", err)
		}
		d.lookAt(names, now, true)
		last := now.Sub(start) >= firstWait
		if last || d.quiet(now) {
			d.apply(now, true)
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(settle):
		}
	}
}

// quiet says whether every file has stood still for a while, judged by its
// times at first.
func (d *Source) quiet(now time.Time) bool {
	for _, file := range d.files {
		if now.Sub(file.since) >= settle || file.info == nil {
			continue
		}
		if age := now.Sub(file.info.ModTime()); age >= 0 && age < settle {
			return false
		}
	}
	return true
}

// scan looks at the directory. A directory that cannot be read changes nothing.
func (d *Source) scan(now time.Time, fully bool) bool {
	names, err := listDirectory(d.path)
	if err != nil {
		if problem := pathless(err); problem != d.listing {
			d.listing = problem
			d.logger.Error("the directory is unreadable: everything stays as it is", zap.String("reason", problem))
		}
		return false
	}
	if d.listing != "" {
		d.listing = ""
		d.logger.Info("the directory can be read again")
	}
	d.lookAt(names, now, fully || now.Sub(d.readAll) >= fullInterval)
	return true
}

func (d *Source) lookAt(names []string, now time.Time, fully bool) {
	if fully {
		d.readAll = now
	}
	for _, name := range names {
		if d.files[name] == nil {
			d.files[name] = &fileState{name: name, inForce: reading{absent: true}, seen: reading{absent: true}}
		}
	}
	for name, file := range d.files {
		if _, listed := slices.BinarySearch(names, name); listed {
			file.look(d.path, now, fully)
		} else {
			file.info = nil
			file.observe(reading{absent: true}, now)
		}
	}
}

// settled is how long the file must stay unchanged before it counts.
func (f *fileState) settled() time.Duration {
	if f.seen.absent || f.seen.empty {
		return settleGone
	}
	return settle
}

// due is when to look again.
func (d *Source) due(now time.Time) time.Duration {
	wait := pollInterval
	for _, file := range d.files {
		if file.pending() {
			wait = min(wait, max(file.settled()-now.Sub(file.since), eventDelay))
		}
	}
	return wait
}

// apply puts the files that have settled into force, or all of them, and says
// whether that changed an object.
func (d *Source) apply(now time.Time, all bool) bool {
	touched := all
	for _, file := range d.files {
		if file.pending() && (all || now.Sub(file.since) >= file.settled()) {
			d.load(file)
			touched = true
		}
		if file.seen.absent && !file.pending() {
			delete(d.files, file.name)
		}
		// The text may be a Secret's: it is kept no longer than needed.
		if !file.pending() {
			file.seen.text = nil
		}
	}
	if !touched {
		return false
	}
	d.publishRefused()
	if changed := d.reconcile(); !changed && !all {
		return false
	}
	d.publish()
	return true
}

// load parses what a file holds now. A file that cannot be read or parsed
// keeps what it last gave.
func (d *Source) load(file *fileState) {
	file.inForce = file.seen
	file.inForce.text = nil
	file.problem = file.seen.problem
	switch {
	case file.seen.absent:
		file.content = nil
	case file.problem == "":
		content, err := parseFile(file.name, file.seen.text, d.validator)
		if err != nil {
			file.problem = text.OneLine(err.Error(), k8swatch.MaxMessage)
			break
		}
		file.content = content
		d.report(file)
	}
	if file.problem != "" {
		d.logger.Warn("file refused: what it gave before stays", zap.String("file", file.name), zap.String("reason", file.problem))
	}
}

// report logs what a file holds besides objects that can be followed.
func (d *Source) report(file *fileState) {
	for _, kind := range slices.Sorted(maps.Keys(file.content.skipped)) {
		d.logger.Info("objects of another kind skipped", zap.String("file", file.name), zap.String("kind", kind), zap.Int("objects", file.content.skipped[kind]))
	}
	for _, problem := range file.content.nameless {
		d.logger.Warn("object refused", zap.String("file", file.name), zap.String("reason", problem))
	}
}

func (d *Source) publish() {
	objects := &snapshot{
		objects:    map[k8swatch.Key]*k8swatch.Object{},
		secrets:    map[k8swatch.Key]*corev1.Secret{},
		configMaps: map[k8swatch.Key]*corev1.ConfigMap{},
	}
	for id, r := range d.records {
		switch value := r.value.(type) {
		case *v1.ProxyKubeApi:
			objects.objects[id.Key] = &k8swatch.Object{ProxyKubeApi: value, UpdateRefused: r.refused}
		case *corev1.Secret:
			objects.secrets[id.Key] = value
		case *corev1.ConfigMap:
			objects.configMaps[id.Key] = value
		default:
			if r.readable != nil {
				objects.objects[id.Key] = &k8swatch.Object{ProxyKubeApi: r.readable, Invalid: r.refused}
			}
		}
	}
	objects.keys = slices.SortedFunc(maps.Keys(objects.objects), func(a, b k8swatch.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	d.current.Store(objects)
}
