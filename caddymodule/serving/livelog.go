package serving

import (
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LiveLog is a zapcore.Core that writes to the logger of the configuration in
// force. What outlives a configuration logs through it: the writers of an old
// one may be closed.
type LiveLog struct {
	current  *atomic.Pointer[zap.Logger]
	fallback func() zapcore.Core
	fields   []zapcore.Field
}

// NewLiveLog makes a LiveLog that writes to fallback until there is a logger.
func NewLiveLog(fallback func() zapcore.Core) *LiveLog {
	return &LiveLog{current: new(atomic.Pointer[zap.Logger]), fallback: fallback}
}

// Current is the logger in use, nil for the fallback.
func (l *LiveLog) Current() *zap.Logger { return l.current.Load() }

// Swap replaces the logger in use and returns the one before, nil for the
// fallback.
func (l *LiveLog) Swap(logger *zap.Logger) *zap.Logger { return l.current.Swap(logger) }

// Restore takes a logger out of use again, unless another one is in use by now.
func (l *LiveLog) Restore(displaced, logger *zap.Logger) { l.current.CompareAndSwap(logger, displaced) }

func (l *LiveLog) target() zapcore.Core {
	if logger := l.current.Load(); logger != nil {
		return logger.Core()
	}
	return l.fallback()
}

// Enabled follows the level of the configuration in force.
func (l *LiveLog) Enabled(level zapcore.Level) bool { return l.target().Enabled(level) }

// With adds fields to every entry.
func (l *LiveLog) With(fields []zapcore.Field) zapcore.Core {
	with := *l
	with.fields = append(l.fields[:len(l.fields):len(l.fields)], fields...)
	return &with
}

// Check adds the core to an entry that is to be written.
func (l *LiveLog) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

// Write hands the entry on.
func (l *LiveLog) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	return l.target().Write(entry, append(l.fields[:len(l.fields):len(l.fields)], fields...))
}

// Sync flushes the logger in force.
func (l *LiveLog) Sync() error { return l.target().Sync() }
