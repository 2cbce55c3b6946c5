package caddymodule

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// liveLogger is the logger of the configuration that started last.
var liveLogger atomic.Pointer[zap.Logger]

func init() {
	// client-go and the apiserver's packages log with klog.
	klog.SetSlogLogger(slog.New(terse{zapslog.NewHandler(liveCore{}, zapslog.WithName("klog"))}))
}

// terse drops what is more verbose than klog's V(4), which zap would take for
// debug messages: from V(8) on client-go writes the bodies of requests and
// answers, and these hold Secrets (SIG-3).
type terse struct{ slog.Handler }

// Enabled says whether an entry of a level is written.
func (h terse) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelDebug && h.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the limit.
func (h terse) WithAttrs(attrs []slog.Attr) slog.Handler { return terse{h.Handler.WithAttrs(attrs)} }

// WithGroup keeps the limit.
func (h terse) WithGroup(name string) slog.Handler { return terse{h.Handler.WithGroup(name)} }

// liveCore writes to the logger of the configuration in force. What outlives a
// configuration logs through it: the writers of an old one may be closed.
type liveCore struct {
	fields []zapcore.Field
}

func (liveCore) target() zapcore.Core {
	if l := liveLogger.Load(); l != nil {
		return l.Core()
	}
	return caddy.Log().Core()
}

// Enabled follows the level of the configuration in force.
func (c liveCore) Enabled(level zapcore.Level) bool { return c.target().Enabled(level) }

// With adds fields to every entry.
func (c liveCore) With(fields []zapcore.Field) zapcore.Core {
	return liveCore{fields: append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check adds the core to an entry that is to be written.
func (c liveCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write hands the entry on.
func (c liveCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	return c.target().Write(entry, append(c.fields[:len(c.fields):len(c.fields)], fields...))
}

// Sync flushes the logger in force.
func (c liveCore) Sync() error { return c.target().Sync() }
