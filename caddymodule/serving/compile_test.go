package serving

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// What is compiled again: everything after a change without a name and before the
// first snapshot, and otherwise the objects that the changes concern.
func TestTouched(t *testing.T) {
	rt := newTestRuntime(newTestProcess())
	source := &oneObject{}
	source.put("1")
	rt.source = source
	gone := k8swatch.Key{Namespace: "team-a", Name: "gone"}
	before := map[k8swatch.Key]*Cluster{gone: nil}
	object := k8swatch.Change{Kind: k8swatch.KindProxyKubeApi, Namespace: "team-b", Name: "b"}
	secret := k8swatch.Change{Kind: k8swatch.KindSecret, Namespace: "team-b", Name: "unused"}
	for name, tt := range map[string]struct {
		changes []k8swatch.Change
		before  map[k8swatch.Key]*Cluster
		want    []k8swatch.Key
	}{
		"the first list":   {[]k8swatch.Change{object}, nil, []k8swatch.Key{recreated}},
		"anything":         {nil, before, []k8swatch.Key{recreated, gone}},
		"an object":        {[]k8swatch.Change{object}, before, []k8swatch.Key{{Namespace: "team-b", Name: "b"}}},
		"an unused secret": {[]k8swatch.Change{secret}, before, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rt.pending.add(tt.changes...)
			want := map[k8swatch.Key]struct{}{}
			for _, key := range tt.want {
				want[key] = struct{}{}
			}
			if diff := cmp.Diff(want, rt.touched(tt.before)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The result holds until the first certificate changes its state by the clock, a
// minute at most and a second at least.
func TestUntilRecompile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(all ...time.Duration) map[k8swatch.Key]*Cluster {
			clusters := map[k8swatch.Key]*Cluster{{}: {Spec: &k8swatch.Cluster{}}}
			for _, d := range all {
				clusters[k8swatch.Key{Name: d.String()}] = &Cluster{Spec: &k8swatch.Cluster{RecompileAt: time.Now().Add(d)}}
			}
			return clusters
		}
		for _, tt := range []struct {
			clusters map[k8swatch.Key]*Cluster
			want     time.Duration
		}{
			{at(), time.Minute},
			{at(time.Hour), time.Minute},
			{at(time.Hour, 20*time.Second), 20 * time.Second},
			{at(-time.Hour), time.Second},
		} {
			if got := untilRecompile(tt.clusters); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		}
	})
}
