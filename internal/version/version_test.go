package version

import (
	"runtime/debug"
	"testing"
)

func TestBuilt(t *testing.T) {
	other := &debug.Module{Path: "github.com/caddyserver/caddy/v2", Version: "v2.11.9"}
	for name, tc := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"no information":  {nil, "devel"},
		"this module":     {&debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "v1.2.3+dirty"}, Deps: []*debug.Module{other}}, "v1.2.3+dirty"},
		"without a tag":   {&debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "(devel)"}}, "devel"},
		"with xcaddy":     {&debug.BuildInfo{Main: debug.Module{Path: "caddy"}, Deps: []*debug.Module{other, {Path: modulePath, Version: "v1.2.3"}}}, "v1.2.3"},
		"xcaddy, a fork":  {&debug.BuildInfo{Deps: []*debug.Module{{Path: modulePath, Version: "v1.2.3", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.2.4"}}}}, "v1.2.4"},
		"xcaddy, a path":  {&debug.BuildInfo{Deps: []*debug.Module{{Path: modulePath, Version: "v0.0.0", Replace: &debug.Module{Path: "../"}}}}, "devel"},
		"another program": {&debug.BuildInfo{Main: debug.Module{Path: "example.com/x", Version: "v9.0.0"}, Deps: []*debug.Module{other}}, "devel"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := built(tc.info); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// What the linker stamps wins.
func TestString(t *testing.T) {
	if String() == "" {
		t.Error("no version")
	}
	t.Cleanup(func() { stamped = "" })
	stamped = "v1.2.3"
	if got := String(); got != "v1.2.3" {
		t.Error(got)
	}
}
