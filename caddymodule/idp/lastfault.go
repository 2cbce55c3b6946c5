package idp

import (
	"sync"
	"time"
)

// FaultAge is how long a fault is shown that did not come again.
const FaultAge = 5 * time.Minute

// LastFault is the fault of the last call to an endpoint, for notices. It is safe
// for concurrent use.
type LastFault struct {
	// OnChange, if not nil, is told that the fault may have changed. It must not
	// block.
	OnChange func()

	mu    sync.Mutex
	fault Fault
	at    time.Time
}

// Set notes how a call ended, with an empty fault for a usable answer.
func (l *LastFault) Set(fault Fault, now time.Time) {
	l.mu.Lock()
	changed := fault != l.shownLocked(now)
	l.fault, l.at = fault, now
	l.mu.Unlock()
	if changed && l.OnChange != nil {
		l.OnChange()
	}
}

// Get is empty for no fault or when it is long ago.
func (l *LastFault) Get(now time.Time) Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shownLocked(now)
}

func (l *LastFault) shownLocked(now time.Time) Fault {
	if now.Sub(l.at) >= FaultAge {
		return ""
	}
	return l.fault
}
