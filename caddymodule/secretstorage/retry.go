package secretstorage

import (
	"context"
	"errors"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// How long passing faults are borne. A value that is lost after a certificate
// was issued costs another issuance, of which a CA allows only so many; a read
// can hold up the start of the server.
const (
	writePatience = 30 * time.Second
	readPatience  = 5 * time.Second
	// forbiddenPatience bounds how long a right that is missing is waited for.
	// An apiserver that has just started refuses everything until it has read
	// its roles; rights that are really missing should be told soon.
	forbiddenPatience = 5 * time.Second
)

var (
	// errOpening is a target that cannot be had: a fault of the configuration.
	errOpening = errors.New("opening the storage")
	// errForeign is an object that something else made or changed.
	errForeign = errors.New("is not what this storage wrote")
)

// retry calls f until it returns something else than a passing fault, for at
// most that long. The error is the last one of f that is not merely the end of
// ctx.
func retry(ctx context.Context, patience time.Duration, f func() error) error {
	faults := bearing{limit: patience}
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 7, Cap: 2 * time.Second}
	var before error
	for {
		err := f()
		switch {
		case err == nil:
			return nil
		case before != nil && over(ctx):
			return before
		}
		before = err
		pause := backoff.Step()
		if !faults.bears(err, pause) || !sleep(ctx, pause) {
			return err
		}
	}
}

// over says whether ctx has ended, or is about to: a deadline is seen by who
// looks at the clock before it is told.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// bearing is how long faults in a row are borne.
type bearing struct {
	// limit is that of passing faults.
	limit time.Duration
	// since is when the first of them came, refused when the first refusal
	// did: an apiserver that was away refuses for a moment when it is back.
	since, refused time.Time
}

// bears says whether a fault is borne for that much longer.
func (b *bearing) bears(err error, longer time.Duration) bool {
	now := time.Now()
	if b.since.IsZero() {
		b.since = now
	}
	if !apierrors.IsForbidden(err) {
		b.refused = time.Time{}
		return passing(err) && now.Sub(b.since)+longer <= b.limit
	}
	if b.refused.IsZero() {
		b.refused = now
	}
	return now.Sub(b.refused)+longer <= min(b.limit, forbiddenPatience)
}

// sleep waits, and says whether ctx still lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// passing says whether an error may be gone at the next try: a conflict, an
// apiserver that is busy or restarts, a connection that failed.
func passing(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
			apierrors.IsInternalError(err) || apierrors.IsResourceExpired(err) || status.Status().Code >= 500
	}
	for _, final := range []error{fs.ErrNotExist, errOpening, errForeign, errLost} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}
