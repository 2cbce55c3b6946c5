package serving

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// warningPause is the least time between two warnings of one kind and cluster.
const warningPause = time.Minute

// occasionalWarning tells the proxy admin, once in a while, of what callers can
// bring about as often as they like. Metrics count each time.
type occasionalWarning struct {
	logger *zap.Logger
	// last is when it was told last, in Unix nanoseconds.
	last atomic.Int64
}

func (w *occasionalWarning) warn(text string, fields ...zap.Field) {
	now, last := time.Now().UnixNano(), w.last.Load()
	if last != 0 && now-last < int64(warningPause) || !w.last.CompareAndSwap(last, now) {
		return
	}
	w.logger.Warn(text, fields...)
}
