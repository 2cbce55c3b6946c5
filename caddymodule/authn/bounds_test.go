package authn

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unsafe"

	"k8s.io/apiserver/pkg/apis/apiserver"
)

// A payload over 32 KiB is not evaluated; without expressions it counts.
func TestLargePayload(t *testing.T) {
	p := newIDP(t, k1().JWK())
	plain, byExpression := p.authenticator(), p.authenticator()
	byExpression.ClaimMappings.Groups = expression("claims.groups")
	for reason, a := range map[string]apiserver.JWTAuthenticator{"": plain, errTooLarge.Reason: byExpression} {
		w := newWorld(t, a)
		_, err := w.Authenticate(t.Context(), w.token(t, k1(), p, "s", strings.Repeat("s", 33<<10)))
		if reasonOf(err) != reason {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
}

// setMonotonic gives a time another reading of the process's clock, as if the
// time of day had been set or the machine had slept.
func setMonotonic(t, of time.Time) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(&t)).ext = (*layout)(unsafe.Pointer(&of)).ext
	return t
}

// AUTH-12: never past exp, also when the clock of the process stood still.
func TestExpiryIsATimeOfDay(t *testing.T) {
	begun := time.Now()
	now := begun
	c := newTestCaching(0, func() time.Time { return now })
	exp := time.Unix(begun.Unix()+60, 0)
	if validated, _, _ := ask(t, c, "t", good("alice", exp)); !validated {
		t.Fatal("not validated")
	}
	now = setMonotonic(begun.Add(30*time.Second), begun)
	if validated, _, _ := ask(t, c, "t", good("alice", exp)); validated {
		t.Error("forgotten before its time")
	}
	now = setMonotonic(begun.Add(2*time.Minute), begun)
	if now.Sub(begun) != 0 {
		t.Fatal("the clocks were not pulled apart")
	}
	if validated, _, _ := ask(t, c, "t", bad(errExpired)); !validated {
		t.Error("served past exp")
	}
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
