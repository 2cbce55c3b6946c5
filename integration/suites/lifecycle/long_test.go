//go:build long

package lifecycle

import (
	"testing"
	"time"
)

// RLD-01: a cluster that is created, edited and deleted 50 times in 60 s leaves the
// streams of another one alone.
func TestLongRLD01(t *testing.T) {
	t.Parallel()
	testRLD01(t, 50, time.Minute)
}
