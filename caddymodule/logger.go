package caddymodule

import (
	"context"
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
)

// liveLog writes to the log of the configuration that started last, and to
// Caddy's own while there is none.
func liveLog() *serving.LiveLog {
	return serving.NewLiveLog(func() zapcore.Core { return caddy.Log().Core() })
}

func init() {
	// client-go and the apiserver's packages log with klog.
	klog.SetSlogLogger(slog.New(verbosityLimit{zapslog.NewHandler(process.Log, zapslog.WithName("klog"))}))
}

// verbosityLimit drops messages that are more verbose than klog's V(4), which zap
// would take for debug messages. From V(8) on client-go writes the bodies of
// requests and answers, and these hold Secrets (SIG-3).
type verbosityLimit struct{ slog.Handler }

// Enabled reports whether entries of this level are written.
func (h verbosityLimit) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelDebug && h.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the limit.
func (h verbosityLimit) WithAttrs(attrs []slog.Attr) slog.Handler {
	return verbosityLimit{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the limit.
func (h verbosityLimit) WithGroup(name string) slog.Handler {
	return verbosityLimit{h.Handler.WithGroup(name)}
}
