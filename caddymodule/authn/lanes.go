package authn

import (
	"context"
	"runtime"
)

// lanes bounds how much goes on at once of what nothing can interrupt. Those
// who wait give up with their context.
type lanes chan struct{}

// newLanes leaves room for others: it is half of what the process has.
func newLanes() lanes { return make(lanes, max(1, runtime.GOMAXPROCS(0)/2)) }

func (l lanes) enter(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lanes) leave() { <-l }

// evaluations bounds the tokens of all clusters whose expressions are run at
// once. Each cluster has lanes of its own before these, so that one of them
// does not take all.
var evaluations = make(lanes, max(1, runtime.GOMAXPROCS(0)))

// errBusy is for a token that waited for its turn until its time was over.
var errBusy = &Unavailable{Fault: tooManyValidated, Limit: tooManyValidated}

const tooManyValidated = "too many tokens wait to be validated"
