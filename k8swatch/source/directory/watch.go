package directory

import (
	"os"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// notifier reports early that something changed in a directory. The directory is
// also read at intervals, so that the notifier may fail, miss events or watch a
// directory that was replaced.
type notifier struct {
	path    string
	open    func() (*fsnotify.Watcher, error)
	logger  *zap.Logger
	notify  *fsnotify.Watcher
	watched os.FileInfo // the directory that notify watches
	problem string
}

func newNotifier(path string, open func() (*fsnotify.Watcher, error), logger *zap.Logger) *notifier {
	w := &notifier{path: path, open: open, logger: logger}
	w.follow()
	return w
}

// follow makes sure that the directory now at the path is watched.
func (w *notifier) follow() {
	info, err := os.Stat(w.path)
	if err != nil || w.notify != nil && os.SameFile(info, w.watched) {
		return
	}
	w.close()
	notify, err := w.open()
	if err == nil {
		if err = notify.Add(w.path); err != nil {
			notify.Close()
		}
	}
	if err != nil {
		w.fail(err)
		return
	}
	w.notify, w.watched, w.problem = notify, info, ""
}

func (w *notifier) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w *notifier) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

// fail notes why events may be missing.
func (w *notifier) fail(err error) {
	if problem := err.Error(); problem != w.problem {
		w.problem = problem
		w.logger.Warn("no events come from the directory: it is looked at from time to time", zap.Error(err))
	}
}

func (w *notifier) close() {
	if w.notify != nil {
		w.notify.Close()
		w.notify = nil
	}
}
