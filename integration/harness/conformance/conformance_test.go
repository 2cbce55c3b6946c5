package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
)

const report = `[{"SpecReports": [
	{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
	{"ContainerHierarchyTexts": ["[sig-a] A"], "LeafNodeType": "It", "LeafNodeText": "works [Conformance]", "State": "passed", "RunTime": 1000000000},
	{"ContainerHierarchyTexts": ["[sig-a] A", "deep"], "LeafNodeType": "It", "LeafNodeText": "fails [Conformance]", "State": "failed",
	 "Failure": {"Message": "got:\n\t1", "Location": {"FileName": "k8s.io/kubernetes@v1.37.2/test/e2e/apps/a.go", "LineNumber": 7}}},
	{"ContainerHierarchyTexts": ["[sig-a] A"], "LeafNodeType": "It", "LeafNodeText": "hangs [Conformance]", "State": "timedout"},
	{"ContainerHierarchyTexts": ["[sig-a] A"], "LeafNodeType": "It", "LeafNodeText": "is not asked for", "State": "skipped"}
]}]`

func TestReadReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	for name, tc := range map[string]struct {
		content string
		want    Results
		err     string
	}{
		"tests": {report, Results{
			"[sig-a] A works [Conformance]":      {Passed: true, Took: time.Second},
			"[sig-a] A deep fails [Conformance]": {Failure: "got: 1 (apps/a.go:7)"},
			"[sig-a] A hangs [Conformance]":      {},
		}, ""},
		"a suite that did not start": {strings.Replace(report, `"SynchronizedBeforeSuite", "State": "passed"`, `"SynchronizedBeforeSuite", "State": "failed"`, 1), nil, "SynchronizedBeforeSuite"},
		"no report":                  {"{", nil, "reading the report"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readReport(file)
			if (err != nil) != (tc.err != "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// Every way that a test can go has its verdict.
func TestFindings(t *testing.T) {
	const name = "a test"
	pass, fail := Results{name: {Passed: true}}, Results{name: {Failure: "no"}}
	for what, tc := range map[string]struct {
		first, directly, through Results
		listed                   map[string]entry
		want                     Verdict // empty: nothing is told
	}{
		"the same":                   {first: pass},
		"by design":                  {first: fail, listed: map[string]entry{name: {reason: "why"}}, want: ByDesign},
		"by design in this form":     {first: fail, listed: map[string]entry{"path: " + name: {reason: "why"}}, want: ByDesign},
		"by design in another form":  {first: fail, directly: pass, through: fail, listed: map[string]entry{"host: " + name: {reason: "why"}}, want: Fault},
		"an entry without a reason":  {first: pass, listed: map[string]entry{name: {reason: "why"}}, want: Fault},
		"passed again":               {first: fail, directly: pass, through: pass, want: Chance},
		"failed directly again":      {first: fail, directly: fail, through: fail, want: Chance},
		"failed through it twice":    {first: fail, directly: pass, through: fail, want: Fault},
		"did not run through it":     {first: Results{}, directly: pass, through: Results{}, want: Fault},
		"did not run directly again": {first: fail, directly: Results{}, through: fail, want: Chance},
	} {
		t.Run(what, func(t *testing.T) {
			got := findings("path", []string{name}, tc.first, tc.directly, tc.through, tc.listed)
			c := Comparison{Findings: got}
			switch {
			case tc.want == "" && len(got) == 0:
			case len(got) != 1 || got[0].Verdict != tc.want || got[0].Reason == "":
				t.Errorf("%+v, want %q", got, tc.want)
			case (tc.want == Fault) != (len(c.Faults()) == 1):
				t.Errorf("faults %+v", c.Faults())
			}
		})
	}
}

func TestTable(t *testing.T) {
	c := Comparison{
		Tests: 3, Direct: Results{"a": {Passed: true}, "b": {Passed: true}, "c": {}},
		Forms:    map[string]Results{"path": {"a": {Passed: true}, "b": {}}},
		Findings: []Finding{{Form: "path", Test: "b", Verdict: ByDesign, Reason: "why", Failure: "no"}},
		forms:    []string{"path"},
	}
	var got []string
	for line := range strings.Lines(c.Table()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"tests passed failed by design by chance faults", "direct 3 2 1", "path 2 1 1 1 0 0", "path, by design: b", "why", "no"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestLists(t *testing.T) {
	for name, text := range map[string]string{"differences": differencesFile, "left out": leftOutFile} {
		if _, err := parseList(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"a test", "a test || ", "a || b\na || c", "a || b || c || d"} {
		if list, err := parseList(bad); err == nil {
			t.Errorf("%q was read as %v", bad, list)
		}
	}
	listed, err := parseList(leftOutFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Quick() {
		if listed[name].reason != "" {
			t.Errorf("%q is in the quick subset and left out", name)
		}
	}
	if _, err := Runnable([]string{"another"}); err == nil {
		t.Error("a test that is left out does not exist, and nothing was said")
	}
}

func TestShard(t *testing.T) {
	all := []string{"e", "a", "d", "b", "c"}
	var together []string
	for k := 1; k <= 3; k++ {
		together = append(together, Shard(all, k, 3)...)
	}
	if d := cmp.Diff([]string{"a", "d", "b", "e", "c"}, together); d != "" {
		t.Error(d)
	}
}

func TestParseShard(t *testing.T) {
	for text, want := range map[string][2]int{"": {1, 1}, "2/3": {2, 3}, "3/3": {3, 3}} {
		if k, n, err := ParseShard(text); err != nil || k != want[0] || n != want[1] {
			t.Errorf("%q: %d of %d, %v", text, k, n, err)
		}
	}
	for _, bad := range []string{"4/3", "0/3", "2", "a/b", "1/0"} {
		if k, n, err := ParseShard(bad); err == nil {
			t.Errorf("%q: %d of %d", bad, k, n)
		}
	}
}

func TestProgress(t *testing.T) {
	done, failed := progress([]byte("• [1.5 seconds]\n  STEP: • [no]\n• [FAILED] [2 seconds]\n• [0.1 seconds]\nSSS\n"))
	if done != 3 || failed != 1 {
		t.Errorf("%d done, %d failed", done, failed)
	}
}

func TestLibraries(t *testing.T) {
	got := libraries("\tlinux-vdso.so.1 (0x0)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x1)\n\t/lib64/ld-linux-x86-64.so.2 (0x2)\n")
	if d := cmp.Diff([]string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}, got); d != "" {
		t.Error(d)
	}
}

func TestNamed(t *testing.T) {
	i := named(node.Image{}, "agnhost:1", "agnhost:2")
	if i.Name != "registry.k8s.io/e2e-test-images/agnhost:1" || !cmp.Equal(i.Others, []string{"registry.k8s.io/e2e-test-images/agnhost:2"}) {
		t.Errorf("%s %s", i.Name, i.Others)
	}
	if i := named(node.Image{}, "../etcd:3"); i.Name != "registry.k8s.io/etcd:3" {
		t.Error(i.Name)
	}
}
