//go:build long

package clients

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// testStern reads the logs of two pods, and follows those of a pod that comes
// while it runs.
func testStern(t *testing.T, a access) {
	stern := a.with(realtools.Stern)
	common := []string{"--selector=app=talker", "--tail=1", "--output=raw"}
	var pods []string
	for line := range strings.Lines(stern.MustRun(t, append(common, "--no-follow")...).Stdout) {
		name, _, _ := strings.Cut(line, " ")
		pods = append(pods, name)
	}
	slices.Sort(pods)
	if diff := cmp.Diff([]string{"one", "two"}, pods); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	r := stern.MustStart(t, common...)
	for _, pod := range []string{"one", "two", "one", "two"} {
		r.MustLine(t, pod+" tick")
	}
	a.apply(t, fmt.Sprintf(talker, "three"))
	defer a.MustEnd(t, "delete", "pod", "three")
	r.MustLine(t, "three tick")
}
