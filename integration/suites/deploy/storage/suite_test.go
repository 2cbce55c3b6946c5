package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/google/go-cmp/cmp"
)

// expectations are what certmagic's documentation of Storage, Locker and
// TryLocker demands. open returns a storage over the same place each time, as
// two replicas have it.
func expectations(t *testing.T, place func(t *testing.T) (open func() certmagic.Storage)) {
	for name, test := range map[string]func(t *testing.T, a, b certmagic.Storage){
		"values":             testValues,
		"what is not there":  testMissing,
		"directories":        testDirectories,
		"deletion":           testDeletion,
		"stat":               testStat,
		"certmagic's keys":   testKeys,
		"concurrent stores":  testConcurrentStores,
		"locks":              testLocks,
		"locks without wait": testTryLock,
		"cleaning":           testCleaning,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := place(t)
			test(t, open(), open())
		})
	}
}

func TestFileStorage(t *testing.T) {
	t.Parallel()
	expectations(t, func(t *testing.T) func() certmagic.Storage {
		dir := t.TempDir()
		return func() certmagic.Storage { return &certmagic.FileStorage{Path: dir} }
	})
}

func TestSecretStorage(t *testing.T) {
	t.Parallel()
	api := shared.Get(t)
	expectations(t, func(t *testing.T) func() certmagic.Storage {
		p := newPlace(t, api)
		return func() certmagic.Storage { return p.open() }
	})
}

func load(t *testing.T, s certmagic.Storage, key string) []byte {
	t.Helper()
	value, err := s.Load(within(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func testValues(t *testing.T, a, b certmagic.Storage) {
	ctx := within(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, value := range [][]byte{[]byte("one"), every, {}, nil, bytes.Repeat(every, 1024), []byte("last")} {
		must(t, a.Store(ctx, "some/key", value))
		for _, s := range []certmagic.Storage{a, b} {
			if got := load(t, s, "some/key"); !bytes.Equal(got, value) {
				t.Fatalf("stored %d bytes, loaded %d", len(value), len(got))
			}
		}
	}
}

func testMissing(t *testing.T, s, _ certmagic.Storage) {
	ctx := within(t)
	must(t, s.Store(ctx, "there/file", []byte("x")))
	for _, key := range []string{"none", "none/at/all", "there/other", "there/file2", "the", "there/fil"} {
		if _, err := s.Load(ctx, key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Load(%q): %v", key, err)
		}
		if _, err := s.Stat(ctx, key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Stat(%q): %v", key, err)
		}
		if keys, err := s.List(ctx, key, false); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("List(%q): %q, %v", key, keys, err)
		}
		if s.Exists(ctx, key) {
			t.Errorf("Exists(%q)", key)
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("Delete(%q): %v", key, err)
		}
	}
	if !s.Exists(ctx, "there/file") {
		t.Error("something else was deleted")
	}
}

func fill(t *testing.T, s certmagic.Storage, keys ...string) {
	t.Helper()
	for _, key := range keys {
		must(t, s.Store(within(t), key, []byte("value of "+key)))
	}
}

func testDirectories(t *testing.T, s, b certmagic.Storage) {
	ctx := within(t)
	fill(t, s, "a/b/c/one", "a/b/c/two", "a/b/file", "a/bc/other", "ab/x", "top")
	for _, tc := range []struct {
		directory string
		recursive bool
		want      []string
	}{
		{"", false, []string{"a", "ab", "top"}},
		{"", true, []string{"a", "a/b", "a/b/c", "a/b/c/one", "a/b/c/two", "a/b/file", "a/bc", "a/bc/other", "ab", "ab/x", "top"}},
		{"a", false, []string{"a/b", "a/bc"}},
		{"a/b", false, []string{"a/b/c", "a/b/file"}},
		{"a/b", true, []string{"a/b/c", "a/b/c/one", "a/b/c/two", "a/b/file"}},
		{"a/b/c", true, []string{"a/b/c/one", "a/b/c/two"}},
		{"top", false, nil},
	} {
		got, err := b.List(ctx, tc.directory, tc.recursive)
		must(t, err)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("List(%q, %t): -want +got:\n%s", tc.directory, tc.recursive, diff)
		}
	}
	for _, key := range []string{"a", "a/b", "a/b/c", "ab"} {
		info, err := b.Stat(ctx, key)
		if err != nil || info.IsTerminal || info.Key != key {
			t.Errorf("Stat(%q): %+v, %v", key, info, err)
		}
		if !b.Exists(ctx, key) {
			t.Errorf("Exists(%q) is false", key)
		}
	}
}

func testDeletion(t *testing.T, s, b certmagic.Storage) {
	ctx := within(t)
	fill(t, s, "a/b/c/one", "a/b/two", "a/bc/other", "file")
	must(t, s.Delete(ctx, "file"))
	must(t, s.Delete(ctx, "file"))
	must(t, s.Delete(ctx, "a/b"))
	got, err := b.List(ctx, "a", true)
	must(t, err)
	if diff := cmp.Diff([]string{"a/bc", "a/bc/other"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	fill(t, s, "file")
	if got := load(t, b, "file"); string(got) != "value of file" {
		t.Errorf("%q", got)
	}
}

func testStat(t *testing.T, s, b certmagic.Storage) {
	ctx := within(t)
	before := time.Now().Add(-2 * time.Second) // file systems round
	must(t, s.Store(ctx, "a/file", make([]byte, 12345)))
	info, err := b.Stat(ctx, "a/file")
	must(t, err)
	if info.Key != "a/file" || !info.IsTerminal || info.Size != 12345 {
		t.Errorf("%+v", info)
	}
	if info.Modified.Before(before) || info.Modified.After(time.Now().Add(2*time.Second)) {
		t.Errorf("modified %s", info.Modified)
	}
}

func testKeys(t *testing.T, s, b certmagic.Storage) {
	keys := map[string]bool{}
	for _, domain := range []string{"example.com", "*.example.com", "xn--bcher-kva.example", "EXAMPLE.com", "192.0.2.1", "2001:db8::1", "a_b.example.com", strings.Repeat("label.", 40) + "example"} {
		for _, key := range []string{
			certmagic.StorageKeys.SiteCert("acme-v02.api.letsencrypt.org-directory", domain),
			certmagic.StorageKeys.SitePrivateKey("acme-v02.api.letsencrypt.org-directory", domain),
			certmagic.StorageKeys.SiteMeta("https://ca.example/dir?x=1", domain),
		} {
			keys[key] = true
		}
	}
	for _, key := range []string{"acme/ca/users/someone@example.com/someone.json", "With Space/Ünïcode", "a.b", "a-b", "a_b", "A_B"} {
		keys[key] = true
	}
	for key := range keys {
		fill(t, s, key)
	}
	for key := range keys {
		if got := load(t, b, key); string(got) != "value of "+key {
			t.Errorf("%q: %q", key, got)
		}
	}
	all, err := b.List(within(t), "", true)
	must(t, err)
	found := 0
	for _, key := range all {
		if keys[key] {
			found++
		}
	}
	if found != len(keys) {
		t.Errorf("%d of %d keys are listed", found, len(keys))
	}
}

// Of values that are stored at the same time one stays, whole, and no store
// fails.
func testConcurrentStores(t *testing.T, a, b certmagic.Storage) {
	ctx := within(t)
	const size = 64 << 10
	value := func(n int) []byte { return bytes.Repeat([]byte{byte('a' + n)}, size) }
	must(t, a.Store(ctx, "key", value(0)))
	var wg sync.WaitGroup
	for n := range 20 {
		s := a
		if n%2 == 0 {
			s = b
		}
		wg.Go(func() {
			if err := s.Store(ctx, "key", value(n)); err != nil {
				t.Errorf("storing: %v", err)
			}
		})
		wg.Go(func() {
			got, err := s.Load(ctx, "key")
			if err != nil || len(got) != size || len(bytes.Trim(got, string(got[:1]))) != 0 {
				t.Errorf("loaded %d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
}

func testLocks(t *testing.T, a, b certmagic.Storage) {
	ctx := within(t)
	must(t, a.Lock(ctx, "issue_cert_*.example.com"))
	must(t, a.Lock(ctx, "another"))
	for _, s := range []certmagic.Storage{a, b} {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		if err := s.Lock(short, "issue_cert_*.example.com"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a lock that is held: %v", err)
		}
		cancel()
	}
	acquired := make(chan error, 1)
	go func() { acquired <- b.Lock(ctx, "issue_cert_*.example.com") }()
	select {
	case err := <-acquired:
		t.Fatalf("a lock that is held was acquired: %v", err)
	case <-time.After(time.Second):
	}
	must(t, a.Unlock(ctx, "issue_cert_*.example.com"))
	must(t, <-acquired)
	must(t, b.Unlock(ctx, "issue_cert_*.example.com"))
	must(t, a.Unlock(ctx, "another"))
	if err := a.Unlock(ctx, "another"); err == nil {
		t.Error("a lock was released that is not held")
	}
}

func testTryLock(t *testing.T, a, b certmagic.Storage) {
	ctx := within(t)
	for _, s := range []certmagic.Storage{a, b} {
		locker := s.(certmagic.TryLocker)
		got, err := locker.TryLock(ctx, "ari")
		if err != nil || !got {
			t.Fatalf("a free lock: %t, %v", got, err)
		}
		for _, other := range []certmagic.Storage{a, b} {
			if got, err := other.(certmagic.TryLocker).TryLock(ctx, "ari"); got || err != nil {
				t.Fatalf("a lock that is held: %t, %v", got, err)
			}
		}
		must(t, locker.Unlock(ctx, "ari"))
	}
}

// certmagic.CleanStorage walks all directories and deletes what has expired.
func testCleaning(t *testing.T, s, b certmagic.Storage) {
	ctx := within(t)
	issuer := newIssuer(t)
	for name, end := range map[string]time.Time{"old.example.com": time.Now().Add(-48 * time.Hour), "new.example.com": time.Now().Add(time.Hour)} {
		pair := issuer.pair(t, name, end)
		must(t, s.Store(ctx, certmagic.StorageKeys.SiteCert("ca", name), pair.CertPEM))
		must(t, s.Store(ctx, certmagic.StorageKeys.SitePrivateKey("ca", name), pair.KeyPEM))
		must(t, s.Store(ctx, certmagic.StorageKeys.SiteMeta("ca", name), []byte("{}")))
	}
	must(t, certmagic.CleanStorage(ctx, s, certmagic.CleanStorageOptions{ExpiredCerts: true, ExpiredCertGracePeriod: time.Hour, OCSPStaples: true}))
	got, err := b.List(ctx, "certificates", true)
	must(t, err)
	want := []string{"certificates/ca", "certificates/ca/new.example.com"}
	for _, ending := range []string{"crt", "json", "key"} {
		want = append(want, fmt.Sprintf("certificates/ca/new.example.com/new.example.com.%s", ending))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
