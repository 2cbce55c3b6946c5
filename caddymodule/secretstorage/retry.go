package secretstorage

import (
	"context"
	"errors"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// How long faults are retried. A value that is lost after a certificate was
// issued costs another issuance, and a CA limits their number; a read can delay
// the start of the server.
const (
	writePatience = 30 * time.Second
	readPatience  = 5 * time.Second
	// forbiddenPatience is how long a 403 is retried. An apiserver that has just
	// started refuses every request until it has read its roles; rights that are
	// really missing should be reported soon.
	forbiddenPatience = 5 * time.Second
)

var (
	// errOpening is a fault of the configuration: there is no client.
	errOpening = errors.New("opening the storage")
	// errForeign is an object that another program made or changed.
	errForeign = errors.New("is not what this storage wrote")
)

// retry calls f until it succeeds, fails for good, or has failed for as long as
// patience allows. When ctx ends between two calls, the error is that of the call
// and not the end of ctx, which explains nothing.
func retry(ctx context.Context, patience time.Duration, f func() error) error {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: time.Second}
	faults := faultTimer{patience: patience}
	var last error
	err := backoff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		err := f()
		if err != nil && last != nil && expired(ctx) {
			return false, last
		}
		last = err
		if err != nil && faults.giveUp(err) {
			return false, err
		}
		return err == nil, nil
	})
	if err != nil {
		return last
	}
	return nil
}

// expired reports whether ctx has ended. The clock may reach its deadline a moment
// before ctx says so.
func expired(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// faultTimer measures for how long calls have failed in a row.
type faultTimer struct {
	patience time.Duration
	// failing is when the first call failed, forbidden when the first 403 of the
	// latest row came: an apiserver that was away answers 403 for a moment when
	// it is back, however long it was away.
	failing, forbidden time.Time
}

// giveUp reports whether a failed call should not be retried.
func (t *faultTimer) giveUp(err error) bool {
	now := time.Now()
	if t.failing.IsZero() {
		t.failing = now
	}
	if !apierrors.IsForbidden(err) {
		t.forbidden = time.Time{}
		return !transient(err) || now.Sub(t.failing) > t.patience
	}
	if t.forbidden.IsZero() {
		t.forbidden = now
	}
	return now.Sub(t.forbidden) > min(t.patience, forbiddenPatience)
}

// transient reports whether an error may be gone at the next call: a conflict, an
// apiserver that is busy or restarts, a connection that failed.
func transient(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsResourceExpired(err) || status.Status().Code >= 500
	}
	for _, final := range []error{fs.ErrNotExist, errOpening, errForeign, errLost} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}
