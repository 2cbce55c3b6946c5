package serving

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// URL-6: the cluster's own entry takes the place of Caddy's, and is found again
// behind any other hop.
func TestRelayVia(t *testing.T) {
	relay := NewRelay(&k8swatch.Cluster{Key: k8swatch.Key{Namespace: "team-a", Name: "prod"}}, nil)
	other := NewRelay(&k8swatch.Cluster{Key: k8swatch.Key{Namespace: "team-a", Name: "test"}}, nil)
	for name, tt := range map[string]struct {
		major, minor int
		before, want []string
	}{
		"none":            {1, 1, nil, []string{"1.1 " + relay.via}},
		"Caddy's alone":   {1, 1, []string{"1.1 Caddy"}, []string{"1.1 " + relay.via}},
		"HTTP/2":          {2, 0, []string{"2.0 Caddy"}, []string{"2.0 " + relay.via}},
		"HTTP/1.0":        {1, 0, []string{"1.0 Caddy"}, []string{"1.0 " + relay.via}},
		"behind another":  {1, 1, []string{"1.1 edge", "1.1 Caddy"}, []string{"1.1 edge", "1.1 " + relay.via}},
		"another version": {2, 0, []string{"1.1 Caddy"}, []string{"1.1 Caddy", "2.0 " + relay.via}},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			if tt.before != nil {
				h["Via"] = tt.before
			}
			relay.SetVia(h, tt.major, tt.minor)
			if diff := cmp.Diff(tt.want, h["Via"]); diff != "" {
				t.Error(diff)
			}
			if !relay.IsLoop(h["Via"]) || other.IsLoop(h["Via"]) {
				t.Error("the loop is not seen, or seen where there is none")
			}
		})
	}
	for value, want := range map[string]bool{
		"": false, relay.via: false, "1.1 " + relay.via + "x": false, "1.1 a, HTTP/1.1\t" + relay.via + " (comment)": true,
	} {
		if relay.IsLoop([]string{"1.1 first", value}) != want {
			t.Errorf("%q: a loop is %t", value, !want)
		}
	}
}
