package directory

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
)

// A wrong kind, version, name or namespace over a served object is a mistake
// and no deletion: it is refused with a warning, and what the file gave stays
// (CONF-6).
func TestDirectoryWithMistakenObjects(t *testing.T) {
	served := dirCluster("a", "https://1") + dirSecret("s", "v") + dirConfigMap("c", "v")
	next := dirCluster("a", "https://2") + dirSecret("s", "v") + dirConfigMap("c", "v")
	const wantAPI = "expected apiVersion weebo.si.rs/v1 and kind ProxyKubeApi"
	tests := []struct{ name, from, to, reason string }{
		{"a kind in other letters", "kind: ProxyKubeApi", "kind: ProxyKubeAPI", `team-a/a: an object has apiVersion "weebo.si.rs/v1" and kind "ProxyKubeAPI": ` + wantAPI},
		{"a kind that is misspelt", "kind: ProxyKubeApi", "kind: ProxyKubApi", `and kind "ProxyKubApi": ` + wantAPI},
		{"the plural", "kind: ProxyKubeApi", "kind: proxykubeapis", `and kind "proxykubeapis": ` + wantAPI},
		{"another version", "weebo.si.rs/v1", "weebo.si.rs/v2", `team-a/a: an object has apiVersion "weebo.si.rs/v2" and kind "ProxyKubeApi": ` + wantAPI},
		{"no version", "weebo.si.rs/v1", "weebo.si.rs", `apiVersion "weebo.si.rs" and kind "ProxyKubeApi": ` + wantAPI},
		{"a version too many", "weebo.si.rs/v1", "weebo.si.rs/v1/x", `apiVersion "weebo.si.rs/v1/x" and kind`},
		{"a group in other letters", "weebo.si.rs/v1", "Weebo.si.rs/v1", `apiVersion "Weebo.si.rs/v1" and kind "ProxyKubeApi": ` + wantAPI},
		{"another group", "weebo.si.rs/v1", "weebo.si/v1", `apiVersion "weebo.si/v1" and kind "ProxyKubeApi": ` + wantAPI},
		{"a kind with a line break", "kind: ProxyKubeApi", `kind: "Proxy\nKubeApi"`, `kind "Proxy\nKubeApi": ` + wantAPI},
		{"a namespace in other letters", "name: a, namespace: team-a", "name: a, namespace: Team_A", `ProxyKubeApi a has the metadata.namespace "Team_A", which is no name`},
		{"a name in other letters", "name: a, namespace", "name: Team_A, namespace", `a ProxyKubeApi has the metadata.name "Team_A", which is no name`},
		{"a namespace that is a number", "name: a, namespace: team-a", "name: a, namespace: 7", "ProxyKubeApi a has no metadata.namespace"},
		{"a Secret in other letters", "kind: Secret", "kind: secret", `team-a/s: an object has apiVersion "v1" and kind "secret": expected apiVersion v1 and kind Secret`},
		{"a ConfigMap in other letters", "kind: ConfigMap", "kind: Configmap", "expected apiVersion v1 and kind ConfigMap"},
		{"a Secret of no version", "apiVersion: v1\nkind: Secret", "apiVersion: V1\nkind: Secret", `apiVersion "V1" and kind "Secret": expected apiVersion v1 and kind Secret`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rig := newDirRig(t, map[string]string{"a.yaml": served})
			text := strings.Replace(next, test.from, test.to, 1)
			if text == next {
				t.Fatalf("%q is not there", test.from)
			}
			rig.rewrite("a.yaml", text)
			// An object that is still readable follows the file.
			want := "https://1"
			if strings.Contains(test.name, "Secret") || strings.Contains(test.name, "ConfigMap") {
				want = "https://2"
			}
			_, err := rig.ConfigMap("team-a", "c")
			if got := rig.url("a") + rig.secret("s"); got != want+"v" || err != nil {
				t.Errorf("in force: %q, %v", got, err)
			}
			if got := rig.refusedUpdate("a"); want == "https://1" && (!strings.HasPrefix(got, "a.yaml: ") || !strings.Contains(got, test.reason)) {
				t.Errorf("UpdateRefused = %q", got)
			}
			warned := false
			for _, entry := range rig.logs.FilterMessage("object refused").All() {
				fields := fmt.Sprint(entry.ContextMap())
				warned = warned || entry.Level == zapcore.WarnLevel && strings.Contains(fields, "file:a.yaml") && strings.Contains(fields, test.reason)
			}
			if !warned || rig.logged("object removed")+rig.logged("skipped") > 0 {
				t.Errorf("logs: %v", rig.logs.All())
			}
			rig.rewrite("a.yaml", next)
			if got := rig.url("a") + rig.refusedUpdate("a"); got != "https://2" {
				t.Errorf("after the repair: %q", got)
			}
			rig.rewrite("a.yaml", "")
			if rig.Object(dirKey("a")) != nil || rig.secret("s") != "" {
				t.Error("still there after the removal")
			}
		})
	}
}

// The same in a List, where the whole list may have the wrong version, and from
// the start, where nothing was served.
func TestDirectoryWithMistakenLists(t *testing.T) {
	list := "apiVersion: weebo.si.rs/v1\nkind: ProxyKubeApiList\nitems:\n- {metadata: {name: a, namespace: team-a}, spec: {service: {ExternalService: {url: https://1}}}}\n"
	for name, text := range map[string]string{
		"the version of the list": strings.Replace(list, "/v1", "/v2", 1),
		"the kind of the list":    strings.Replace(list, "ApiList", "APIList", 1),
		"the kind of an item":     strings.Replace(list, "{metadata", "{apiVersion: weebo.si.rs/v1, kind: ProxyKubeAPI, metadata", 1),
		"a list of v1":            strings.Replace(strings.Replace(list, "weebo.si.rs/v1", "v1", 1), "ProxyKubeApiList", "list", 1),
	} {
		t.Run(name, func(t *testing.T) {
			rig := newDirRig(t, map[string]string{"a.yaml": list})
			rig.rewrite("a.yaml", text)
			if got := rig.url("a"); got != "https://1" || !strings.Contains(rig.refusedUpdate("a"), ": expected apiVersion ") {
				t.Errorf("in force: %q, UpdateRefused %q", got, rig.refusedUpdate("a"))
			}
			rig = newDirRig(t, map[string]string{"a.yaml": text + dirCluster("b", "https://b")})
			if rig.url("b") != "https://b" || len(rig.Keys()) != 1 || rig.logged("expected apiVersion ") != 1 {
				t.Errorf("from the start: %v; %v", rig.Keys(), rig.logs.All())
			}
		})
	}
}
