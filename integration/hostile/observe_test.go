package hostile

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/proxy"
)

// metrics is the whole page of a proxy.
func metrics(t *testing.T, px *proxy.Proxy) string {
	t.Helper()
	resp, err := http.Get(px.Health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("reading the metrics: %d, %v", resp.StatusCode, err)
	}
	return string(page)
}

// counter is the value of one series, `name{label="value"}`, 0 when absent.
func counter(t *testing.T, px *proxy.Proxy, series string) int {
	t.Helper()
	for line := range strings.Lines(metrics(t, px)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatalf("%s: %v", series, err)
			}
			return int(value)
		}
	}
	return 0
}

// audited waits for the audit line of a request to that apiserver path, which
// must be its own in the test run.
func audited(t *testing.T, px *proxy.Proxy, path string) proxy.Entry {
	t.Helper()
	return px.MustAudit(t, func(e proxy.Entry) bool { return e.Text("path") == path })
}

// viaOf is the name of a cluster in Via headers (URL-6).
func viaOf(key, url string) string {
	sum := sha256.Sum256([]byte(key + "\n" + proxy.CanonicalTarget(url)))
	return "proxyauth-" + hex.EncodeToString(sum[:8])
}
