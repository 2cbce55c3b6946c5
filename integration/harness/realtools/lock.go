package realtools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/gobuild"
)

// lock takes an exclusive lock on a file, between processes and within this
// one, and tells waiting each gobuild.Interval how long it has waited.
func lock(ctx context.Context, path string, waiting func(time.Duration)) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}
	start := time.Now()
	last := start
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing releases
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("taking the build lock: %w", err)
		}
		if time.Since(last) >= gobuild.Interval {
			last = time.Now()
			waiting(time.Since(start).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for the build lock: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
