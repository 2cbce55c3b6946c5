package hostile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// auditLog follows the log of a proxy, so that a test that looks for hundreds
// of lines reads each of them once.
type auditLog struct {
	offset int64
	byPath map[string][]proxy.Entry
}

var auditLogs = map[*proxy.Proxy]*auditLog{}

func (l *auditLog) read(t *testing.T, px *proxy.Proxy) {
	t.Helper()
	f, err := os.Open(px.Value("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written
		}
		l.offset += int64(len(line))
		if !bytes.Contains(line, []byte(proxy.AuditLogger)) {
			continue
		}
		var e proxy.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if e.Text("logger") == proxy.AuditLogger {
			l.byPath[e.Text("path")] = append(l.byPath[e.Text("path")], e)
		}
	}
}

// audited waits for the audit line of a request to that apiserver path, which
// must be its own in the test run.
func audited(t *testing.T, px *proxy.Proxy, path string) proxy.Entry {
	t.Helper()
	l := auditLogs[px]
	if l == nil {
		l = &auditLog{byPath: map[string][]proxy.Entry{}}
		auditLogs[px] = l
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		l.read(t, px)
		switch n := len(l.byPath[path]); {
		case n == 1:
			return l.byPath[path][0]
		case n > 1:
			t.Fatalf("%d audit lines of %s", n, path)
		case time.Now().After(deadline):
			t.Fatalf("no audit line of %s", path)
		}
	}
}

// viaOf is the name of a cluster in Via headers (URL-6).
func viaOf(key, url string) string {
	sum := sha256.Sum256([]byte(key + "\n" + proxy.CanonicalTarget(url)))
	return "proxyauth-" + hex.EncodeToString(sum[:8])
}
