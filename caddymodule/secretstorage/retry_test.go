package secretstorage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An apiserver that was away for a while answers 403 to every request for a
// moment when it is back. How long it was away does not shorten that moment.
func TestForbiddenAfterAnOutageIsRetried(t *testing.T) {
	away, refused := errors.New("connection refused"), apierrors.NewForbidden(corev1.Resource("secrets"), "x", nil)
	for name, test := range map[string]struct {
		away, refuses time.Duration
		retried       bool
	}{
		"neither":                  {0, 0, true},
		"refuses for a moment":     {0, 3 * time.Second, true},
		"refuses":                  {0, time.Hour, false},
		"away, then for a moment":  {20 * time.Second, 3 * time.Second, true},
		"away, then refuses":       {20 * time.Second, time.Hour, false},
		"away for longer than may": {time.Hour, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := retry(t.Context(), writePatience, func() error {
					switch since := time.Since(start); {
					case since < test.away:
						return away
					case since < test.away+test.refuses:
						return refused
					}
					return nil
				})
				if (err == nil) != test.retried {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				if took := time.Since(start); took > writePatience+forbiddenPatience {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

func TestTransient(t *testing.T) {
	resource := corev1.Resource("secrets")
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"a connection that failed": {errors.New("connection refused"), true},
		"a conflict":               {apierrors.NewConflict(resource, "x", nil), true},
		"created meanwhile":        {apierrors.NewAlreadyExists(resource, "x"), true},
		"busy":                     {apierrors.NewTooManyRequestsError("busy"), true},
		"a timeout":                {apierrors.NewTimeoutError("slow", 1), true},
		"restarting":               {apierrors.NewServiceUnavailable("restarting"), true},
		"an expired list":          {apierrors.NewResourceExpired("old"), true},
		"wrapped":                  {fmt.Errorf("listing: %w", apierrors.NewInternalError(errors.New("x"))), true},
		"not valid":                {apierrors.NewBadRequest("x"), false},
		"not authenticated":        {apierrors.NewUnauthorized("x"), false},
		"not found":                {fs.ErrNotExist, false},
		"no client":                {fmt.Errorf("%w: x", errOpening), false},
		"of another program":       {fmt.Errorf("x %w", errForeign), false},
		"a lost lock":              {errLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := transient(tc.err); got != tc.want {
				t.Errorf("%t for %v", got, tc.err)
			}
		})
	}
}

// The error says what failed, and not that ctx has ended.
func TestRetryReportsTheFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := retry(ctx, writePatience, func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return refused
		})
		if !errors.Is(err, refused) {
			t.Errorf("%v", err)
		}
	})
}
