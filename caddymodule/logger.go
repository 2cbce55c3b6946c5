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
	klog.SetSlogLogger(slog.New(terse{zapslog.NewHandler(process.Log, zapslog.WithName("klog"))}))
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
