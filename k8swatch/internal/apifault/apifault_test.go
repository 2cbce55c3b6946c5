package apifault

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOf(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, tt := range map[string]struct {
		err  error
		want Class
		ok   bool
	}{
		"success":            {nil, None, true},
		"no connection":      {errors.New("connection refused"), Away, true},
		"internal error":     {apierrors.NewInternalError(errors.New("x")), Away, true},
		"unavailable":        {apierrors.NewServiceUnavailable("x"), Away, true},
		"forbidden":          {apierrors.NewForbidden(secrets, "x", nil), Forbidden, true},
		"unauthorized":       {apierrors.NewUnauthorized("x"), Unauthorized, true},
		"unknown resource":   {apierrors.NewNotFound(secrets, "x"), Missing, true},
		"an old watch":       {apierrors.NewResourceExpired("x"), None, false},
		"too many requests":  {apierrors.NewTooManyRequests("x", 1), None, false},
		"cannot stream list": {apierrors.NewBadRequest("x"), None, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := Of(tt.err); got != tt.want || ok != tt.ok {
				t.Errorf("got %v %v, want %v %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// A refusal is logged once it lasts, and then from time to time.
func TestRefusalDue(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	r := Refusal{Class: Forbidden}
	for _, tt := range []struct {
		after       time.Duration
		due, logged bool
	}{
		{0, false, false},
		{RefusedFor - 1, false, false},
		{RefusedFor, true, true},
		{RefusedFor + RemindEvery - 1, false, true},
		{RefusedFor + RemindEvery, true, true},
	} {
		if due := r.Due(start.Add(tt.after)); due != tt.due || r.Logged() != tt.logged {
			t.Errorf("after %v: due %v, logged %v", tt.after, due, r.Logged())
		}
	}
}
