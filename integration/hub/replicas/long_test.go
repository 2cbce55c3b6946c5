//go:build long

package replicas

import (
	"testing"
	"time"
)

// REC-2: the hub is away for two minutes.
func TestLongREC2Outage(t *testing.T) { outage(t, 2*time.Minute) }
