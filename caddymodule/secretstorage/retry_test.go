package secretstorage

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An apiserver that was away for a while refuses everybody for a moment when it
// is back: how long it was away does not count against that.
func TestRefusalAfterAnAbsenceIsBorne(t *testing.T) {
	away, refused := errors.New("connection refused"), apierrors.NewForbidden(corev1.Resource("secrets"), "x", nil)
	for name, test := range map[string]struct {
		away, refuses time.Duration
		borne         bool
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
				if (err == nil) != test.borne {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				if took := time.Since(start); took > writePatience+forbiddenPatience {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}
