package streamtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
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
