package idp

import (
	"testing"
	"time"
)

// AUTH-13: a fault is shown until a usable answer or for five minutes, and each
// change of what is shown is told.
func TestLastFault(t *testing.T) {
	told := 0
	l := LastFault{OnChange: func() { told++ }}
	now := time.Now()
	for _, step := range []struct {
		after time.Duration
		fault Fault
		want  Fault
		told  int
	}{
		{0, "", "", 0},
		{0, "down", "down", 1},
		{FaultAge - 1, "down", "down", 1},
		{FaultAge, "down", "down", 2}, // it was not shown any more
		{0, "slow", "slow", 3},
		{0, "", "", 4},
		{0, "", "", 4},
	} {
		now = now.Add(step.after)
		l.Set(step.fault, now)
		if got := l.Get(now); got != step.want || told != step.told {
			t.Errorf("%q: shown %q, told %d times; want %q, %d", step.fault, got, told, step.want, step.told)
		}
	}
	l.Set("down", now)
	if l.Get(now.Add(FaultAge-1)) != "down" || l.Get(now.Add(FaultAge)) != "" {
		t.Error("it is not shown for five minutes")
	}
}
