package keys

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
)

// AUTH-13: a key set of private keys, which a tenant's provider may publish,
// costs no more than one of public keys, and says nothing but their names.
func TestPrivateKeysAreNotRead(t *testing.T) {
	key := issuertest.RSA1().(*rsa.PrivateKey)
	public := keySetOf(t, jose.JSONWebKey{Key: key.Public(), KeyID: "k"})
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	// Without the values that make the check cheap.
	private := strings.ReplaceAll(public, `"kid"`, fmt.Sprintf(`"d":%q,"p":%q,"q":%q,"kid"`, number(key.D), number(key.Primes[0]), number(key.Primes[1])))

	cost := func(document string, usable bool) time.Duration {
		before := processorTime(t)
		keys, err := parseKeys([]byte(document))
		if err != nil || len(keys) != maxKeys {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, k := range keys {
			if k.id != "k" || (k.key != nil) != usable {
				t.Fatalf("got %+v", k)
			}
		}
		return processorTime(t) - before
	}
	of, than := cost(private, false), cost(public, true)
	if t.Logf("private keys %s, public ones %s", of, than); of > 10*than+20*time.Millisecond {
		t.Error("that is too much")
	}

	for _, member := range []string{"d", "p", "q", "dp", "dq", "qi", "k", "priv", "D"} {
		keys, err := parseKeys([]byte(strings.ReplaceAll(public, `"kid"`, `"`+member+`":"AQAB","kid"`)))
		if err != nil || usable(keys) {
			t.Errorf("with %s: %v, %v", member, keys, err)
		}
	}
	if keys, err := parseKeys([]byte(strings.ReplaceAll(public, `"kid"`, `"d":null,"kid"`))); err != nil || !usable(keys) {
		t.Errorf("with d null: %v, %v", keys, err)
	}
}

// keySetOf is a key set of as many as there may be.
func keySetOf(t *testing.T, key jose.JSONWebKey) string {
	t.Helper()
	one, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	return `{"keys":[` + strings.TrimSuffix(strings.Repeat(string(one)+",", maxKeys), ",") + `]}`
}

// processorTime is what this process has used of it.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func TestRSAKeysAreBounded(t *testing.T) {
	for _, tt := range []struct {
		bits uint
		e    int
		ok   bool
	}{
		{2047, 65537, false}, {2048, 65537, true}, {4096, 65537, true}, {4097, 65537, false}, {8192, 65537, false},
		{2048, 3, true}, {2048, 1, false}, {2048, 65536, false}, {2048, 1<<31 - 1, false}, {2048, -3, false},
	} {
		n := new(big.Int).SetBit(big.NewInt(1), int(tt.bits-1), 1)
		if got := verificationKey(&rsa.PublicKey{N: n, E: tt.e}) != nil; got != tt.ok {
			t.Errorf("%d bits, exponent %d: %t", tt.bits, tt.e, got)
		}
	}
}
