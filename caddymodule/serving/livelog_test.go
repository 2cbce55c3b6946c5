package serving

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A logger made of a LiveLog follows the configuration in force, with its fields
// and its level.
func TestLiveLogFollows(t *testing.T) {
	fallback, atFirst := observer.New(zapcore.InfoLevel)
	live := NewLiveLog(func() zapcore.Core { return fallback })
	logger := zap.New(live).With(zap.String("part", "x"))
	logger.Info("one")
	core, later := observer.New(zapcore.WarnLevel)
	first := zap.New(core)
	if live.Swap(first) != nil {
		t.Error("there was a logger")
	}
	logger.Info("two")
	logger.Warn("three", zap.Int("n", 3))
	if atFirst.Len() != 1 || later.Len() != 1 || later.All()[0].ContextMap()["part"] != "x" || later.All()[0].ContextMap()["n"] != int64(3) {
		t.Errorf("%v, then %v", atFirst.All(), later.All())
	}
	failed := zap.NewNop()
	displaced := live.Swap(failed)
	live.Restore(displaced, failed)
	if live.Current() != first {
		t.Error("the log of a configuration that failed stays")
	}
	live.Restore(nil, failed) // another one is in force
	if live.Current() != first {
		t.Error("the log in force was replaced")
	}
}
