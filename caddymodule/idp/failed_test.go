package idp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

const (
	aboutOne Fault = "its answer cannot be read"
	aboutAll Fault = "it answered with status 500"
)

// failing asks about a token for which the endpoint has that error.
func (s *sources) failing(source, token string, verified bool, err error) error {
	return s.Ask(WithSource(context.Background(), source), token, verified, func(context.Context) error {
		s.calls.Add(1)
		return err
	})
}

// AUTH-13: a token that met a fault three times is not shown to the endpoint again
// for a second, and keeps no other token from it, however often it comes.
func TestOneTokensFault(t *testing.T) {
	for name, fault := range map[string]error{"about the token": AboutToken(aboutOne), "of the endpoint": aboutAll} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, s *sources) {
				for second := range 60 {
					for range 500 {
						if err := s.failing("a", "ended session", true, fault); !errors.Is(err, fault) {
							t.Fatal(err)
						}
					}
					if n := s.calls.Load(); n != faultTries {
						t.Fatalf("%d calls for it in a second", n)
					}
					if s.Fault() == "" {
						t.Fatal("the fault is not shown")
					}
					s.calls.Store(0)
					for i := range 20 {
						if err := s.failing("b", fmt.Sprint("good", second, i), true, nil); err != nil {
							t.Fatalf("another's token: %v", err)
						}
					}
					s.calls.Store(0)
					time.Sleep(faultPause)
				}
				if err := s.failing("a", "ended session", true, nil); err != nil {
					t.Errorf("when the endpoint is well again: %v", err)
				}
			})
		})
	}
}

// AUTH-13: garbage that an endpoint answers with something else than a refusal
// keeps no new tokens out but, for a while, those of its own source.
func TestOneSourcesFaults(t *testing.T) {
	for name, fault := range map[string]error{"about the token": AboutToken(aboutOne), "of the endpoint": aboutAll} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, s *sources) {
				for i := range 3000 {
					_ = s.failing("noisy", fmt.Sprint("garbage", i), false, fault)
					if i%50 == 0 {
						if err := s.from(fmt.Sprint("quiet", i), fmt.Sprint("good", i)); err != nil {
							t.Fatalf("a new token from elsewhere: %v", err)
						}
					}
					time.Sleep(20 * time.Millisecond)
				}
				if n := s.calls.Load(); n > 3100 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

// Which answers may be about one token.
func TestAnswersAboutOneToken(t *testing.T) {
	w := newWorld(t)
	for status, want := range map[int]bool{400: true, 404: true, 413: true, 431: true, 408: false, 425: false, 429: false, 500: false, 503: false, 302: false} {
		w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) })
		err := w.ask(t, fmt.Sprint("token", status), true)
		var fault Fault
		var about tokenFault
		if !errors.As(err, &fault) || errors.As(err, &about) != want {
			t.Errorf("%d: %v, about the token: %t", status, err, !want)
		}
	}
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(make([]byte, boundedjson.MaxAnswer+1)) })
	var about tokenFault
	if err := w.ask(t, "large", true); !errors.As(err, &about) || !errors.Is(err, TooLarge) {
		t.Errorf("too large an answer: %v", err)
	}
}
