package identities

import (
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
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.Health+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
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
