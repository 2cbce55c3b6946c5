package claims

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/apis/apiserver"
)

// cpuTime is the CPU time of this thread.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// AUTH-17: it does not matter how long a key is that is looked up, nor how often.
func TestLookupsOfLongKeysAreCheap(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, long := range []string{strings.Repeat("__dot__", 4500), strings.Repeat("__a", 10500), strings.Repeat("a", 31500)} {
		payload := `{"sub":"alice","m":{"a":"b"},"l":[0],"s":"` + long + `"}`
		c, err := Parse([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		for _, look := range []string{
			"claims.m[?claims.s]", "claims[?claims.s]", "dyn(claims)[?claims.s]", "claims.s in claims.m", "claims.s in claims",
			"has(claims.m.a)", "claims.?m.?a", "claims.m.a", "claims.l[?0]", "{claims.s: 1}[claims.s]", "{'a': 1}[?claims.s]",
			"claims.m[claims.s] == 'b' || true", "claims[claims.s] == 'b' || true",
		} {
			e := "lists.range(200).all(i, [" + strings.Repeat(look+",", 30) + "].size() > 0) ? 'a' : 'b'"
			m := compile(t, apiserver.JWTAuthenticator{ClaimMappings: apiserver.ClaimMappings{Username: expression(e)}})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // not for ever
			began := cpuTime(t)
			_, err := m.identity(ctx, c)
			cancel()
			if took := cpuTime(t) - began; took > 500*time.Millisecond {
				t.Fatalf("%s of %.7s... took %v: %v", look, long, took, err)
			}
		}
	}
}

// AUTH-17: a lookup fails once the time of its evaluation is over.
func TestLookupsEndWithTheEvaluation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := Parse([]byte(`{"m":{"a":"b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	variable := celClaims(ctx, c)
	inner, ok := variable.Get(types.String("m")).(unescapingMap)
	if !ok {
		t.Fatal("m is no map")
	}
	cancel()
	for name, find := range map[string]func(ref.Val) (ref.Val, bool){"claims": variable.Find, "m": inner.Find} {
		if value, found := find(types.String("a")); !found || !types.IsError(value) {
			t.Errorf("a lookup in %s: %v, %t", name, value, found)
		}
	}
	if got := variable.Contains(types.String("m")); !types.IsError(got) {
		t.Errorf("contains: %v", got)
	}
}
