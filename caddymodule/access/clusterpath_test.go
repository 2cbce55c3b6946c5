package access

import (
	"strings"
	"testing"
)

// URL-1.
func TestSplitClusterPath(t *testing.T) {
	tests := []struct {
		raw, ns, name, rest string
		ok                  bool
	}{
		{"/clusters/team-a/prod", "team-a", "prod", "/", true},
		{"/clusters/team-a/prod/", "team-a", "prod", "/", true},
		{"/clusters/team-a/prod/api/v1/pods", "team-a", "prod", "/api/v1/pods", true},
		{"/clusters/team-a/prod.eu-1/api%2Fv1//x/", "team-a", "prod.eu-1", "/api%2Fv1//x/", true},
		{"/clusters/a/b//api", "a", "b", "//api", true},
		{"/clusters/a/b/clusters/c/d", "a", "b", "/clusters/c/d", true},

		{raw: "/CLUSTERS/a/b"},
		{raw: "/Clusters/a/b"},
		{raw: "//clusters/a/b"},
		{raw: "/clusters//a/b"},
		{raw: "/clusters/a//b"},
		{raw: "/%63lusters/a/b"},
		{raw: "/clusters%2Fa/b"},
		{raw: "/clusters/a%2Fb"},
		{raw: "/clusters/a/b%2Fapi"},
		{raw: "/clusters/a/B"},
		{raw: "/clusters/a_b/c"},
		{raw: "/clusters/a/b;x"},
		{raw: "/clusters/a/é"},
		{raw: "/clusters/a"},
		{raw: "/clusters/a/"},
		{raw: "/clusters/"},
		{raw: "/clusters"},
		{raw: "/clustersx/a/b"},
		{raw: "clusters/a/b"},
		{raw: "/x/../clusters/a/b"},
		{raw: "/"},
		{raw: ""},
	}
	for _, tt := range tests {
		t.Run(tt.raw, func(t *testing.T) {
			ns, name, rest, ok := SplitClusterPath(tt.raw)
			if ns != tt.ns || name != tt.name || rest != tt.rest || ok != tt.ok {
				t.Errorf("SplitClusterPath = %q, %q, %q, %t", ns, name, rest, ok)
			}
		})
	}
}

func FuzzSplitClusterPath(f *testing.F) {
	for _, raw := range []string{"/clusters/a/b", "/clusters/a/b/", "/clusters/a/b/api%2F..", "/clusters/a.b/c-d//x", "/CLUSTERS/a/b"} {
		f.Add(raw)
	}
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789.-"
	f.Fuzz(func(t *testing.T, raw string) {
		ns, name, rest, ok := SplitClusterPath(raw)
		if !ok {
			if ns != "" || name != "" || rest != "" {
				t.Fatal("a refused path was taken apart")
			}
			return
		}
		if ns == "" || name == "" || strings.Trim(ns+name, allowed) != "" {
			t.Fatalf("names %q, %q", ns, name)
		}
		if !strings.HasPrefix(rest, "/") {
			t.Fatalf("rest %q", rest)
		}
		whole := "/clusters/" + ns + "/" + name + rest
		if whole != raw && whole != raw+"/" {
			t.Fatalf("%q does not reassemble %q", whole, raw)
		}
	})
}

func BenchmarkSplitClusterPath(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, ok := SplitClusterPath("/clusters/team-a/prod/api/v1/namespaces/team-a/pods"); !ok {
			b.Fatal("not ok")
		}
	}
}
