package streamtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
)

// line is repeated to make up a volume.
const line = "the quick brown fox jumps over the lazy dog, once and again and again\n"

// volume is size bytes of it.
func volume(size int64) io.Reader { return io.LimitReader(&endless{}, size) }

// endless repeats line.
type endless struct{ offset int }

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		copied := copy(p[n:], line[e.offset:])
		n += copied
		e.offset = (e.offset + copied) % len(line)
	}
	return n, nil
}

const volumeTimeout = 3 * time.Minute

// Upload sends size bytes through exec's standard input, which the pod keeps.
func Upload(t *testing.T, k kube.Kubectl, size int64) {
	var out bytes.Buffer
	runVolume(t, k, volume(size), &out, "exec", "-i", Pod, "--", "sh", "-c", "tee /tmp/volume | sha256sum")
	if got, want := out.String(), digest(t, size)+"  -\n"; got != want {
		t.Errorf("the pod has received %q, want %q", got, want)
	}
}

// Download receives what Upload sent, through exec's standard output.
func Download(t *testing.T, k kube.Kubectl, size int64) {
	hash := sha256.New()
	runVolume(t, k, nil, hash, "exec", Pod, "--", "cat", "/tmp/volume")
	if got, want := hex.EncodeToString(hash.Sum(nil)), digest(t, size); got != want {
		t.Errorf("kubectl has printed %s, want %s", got, want)
	}
}

// Echo sends size bytes through exec's standard input, and receives them at the
// same time from its standard output.
func Echo(t *testing.T, k kube.Kubectl, size int64) {
	hash := sha256.New()
	runVolume(t, k, volume(size), hash, "exec", "-i", Pod, "--", "cat")
	if got, want := hex.EncodeToString(hash.Sum(nil)), digest(t, size); got != want {
		t.Errorf("%s came back, want %s", got, want)
	}
}

// Copy copies a file of that size to the pod and back.
func Copy(t *testing.T, k kube.Kubectl, size int64) {
	file := filepath.Join(t.TempDir(), "file")
	if err := write(file, volume(size)); err != nil {
		t.Fatal(err)
	}
	runVolume(t, k, nil, io.Discard, "cp", file, Pod+":/tmp/copied")
	var out bytes.Buffer
	runVolume(t, k, nil, &out, "exec", Pod, "--", "sha256sum", "/tmp/copied")
	if got, want := out.String(), digest(t, size)+"  /tmp/copied\n"; got != want {
		t.Errorf("the pod has %q, want %q", got, want)
	}
	// A kubelet and an apiserver cut the last bytes of a client that is slow for
	// seconds, as on a busy machine: kubectl asks for them again.
	runVolume(t, k, nil, io.Discard, "cp", "--retries=5", Pod+":/tmp/copied", file+".back")
	back, err := os.Open(file + ".back")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, back); err != nil {
		t.Fatal(err)
	}
	if got, want := hex.EncodeToString(hash.Sum(nil)), digest(t, size); got != want {
		t.Errorf("%s came back, want %s", got, want)
	}
}

func write(file string, content io.Reader) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	return f.Close()
}

// Forward makes that many HTTP requests at the same time through one forwarded
// port, each on a connection of its own and with an answer of size bytes.
func Forward(t *testing.T, k kube.Kubectl, requests int, size int64) {
	runVolume(t, k, nil, io.Discard, "exec", Pod, "--", "sh", "-c", fmt.Sprintf("yes '%s' | head -c %d >/tmp/www/part", line[:len(line)-1], size))
	address := k.MustForward(t, "pod/"+Pod, httpPort)
	client := &http.Client{Timeout: volumeTimeout, Transport: &http.Transport{DialContext: k.Namespaces.DialContext, DisableKeepAlives: true}}
	want := digest(t, size)
	start := time.Now()
	var running sync.WaitGroup
	for range requests {
		running.Go(func() {
			body, err := fetch(client, "http://"+address+"/part")
			sum := sha256.Sum256(body)
			if err != nil || hex.EncodeToString(sum[:]) != want {
				t.Errorf("%d bytes came of %d: %v", len(body), size, err)
			}
		})
	}
	running.Wait()
	t.Logf("%d requests took %s", requests, time.Since(start).Round(10*time.Millisecond))
}

func runVolume(t *testing.T, k kube.Kubectl, in io.Reader, out io.Writer, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), volumeTimeout)
	defer cancel()
	cmd, err := k.Command(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &stderr
	start := time.Now()
	if err := k.Namespaces.Do(cmd.Run); err != nil {
		t.Fatalf("kubectl %q: %v: %s", args, err, stderr.String())
	}
	t.Logf("took %s", time.Since(start).Round(10*time.Millisecond))
}

func digest(t *testing.T, size int64) string {
	t.Helper()
	hash := sha256.New()
	if _, err := io.Copy(hash, volume(size)); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
