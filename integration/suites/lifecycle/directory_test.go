package lifecycle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// pickedUp is how soon a change of the directory counts (CONF-6).
const pickedUp = time.Second

// changes measures how soon changes count. A machine that does other things
// too may be late now and then, but not most of the time.
type changes struct{ took []time.Duration }

// count waits until requests of a cluster are answered as a change wants it.
func (c *changes) count(t *testing.T, px *proxy.Proxy, name string, code int, text string) {
	t.Helper()
	c.took = append(c.took, eventually(t, fmt.Sprintf("%s answers %d %s", name, code, text), patience, func() error {
		if a := get(t, px, name); a.Code != code || !strings.Contains(a.Body, text) {
			return fmt.Errorf("it answers %d %s", a.Code, a.Body)
		}
		return nil
	}))
}

func (c *changes) judge(t *testing.T) {
	t.Helper()
	slices.Sort(c.took)
	median := c.took[len(c.took)/2]
	t.Logf("%d changes were picked up after %s to %s, half of them within %s", len(c.took),
		c.took[0].Round(time.Millisecond), c.took[len(c.took)-1].Round(time.Millisecond), median.Round(time.Millisecond))
	if median > pickedUp {
		t.Errorf("half of the changes took more than %s: %v", pickedUp, c.took)
	}
}

// CONF-6, end to end: what happens to the files of the directory is what
// happens to the clusters, within a second.
func TestCONF6(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	first := px.MustServe(t, namespace, "cluster-a")
	streams := openStreams(t, px, "cluster-a")
	prefix := func(p string) func(*v1.ProxyKubeApiSpec) {
		return func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.UserPrefix, s.UpstreamAuth.GroupPrefix = &p, &p }
	}
	path := func(name string) string { return filepath.Join(px.Directory, name) }
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var changed changes
	generation := first.Status.ObservedGeneration
	if generation != 1 {
		t.Errorf("observedGeneration of the first version is %d", generation)
	}

	t.Run("a file written over", func(t *testing.T) {
		must(t, os.WriteFile(path("a.yaml"), []byte(manifest("cluster-a", up, 1, prefix("w:"))), 0o644))
		changed.count(t, px, "cluster-a", 200, `"w:alice"`)
	})
	t.Run("mv of a file over it", func(t *testing.T) {
		px.MustWrite(t, "a.yaml", cluster("cluster-a", up, 1, prefix("m:"))...)
		changed.count(t, px, "cluster-a", 200, `"m:alice"`)
	})
	t.Run("mv to another name", func(t *testing.T) {
		must(t, os.Rename(path("a.yaml"), path("z.yaml")))
		// From outside one cannot see when that counts. So the next change is
		// one of the new file.
		must(t, os.WriteFile(path("z.yaml"), []byte(manifest("cluster-a", up, 1, prefix("z:"))), 0o644))
		changed.count(t, px, "cluster-a", 200, `"z:alice"`)
	})
	t.Run("symlinks swapped as a volume of Kubernetes does", func(t *testing.T) {
		for n, p := range []string{"l0:", "l1:", "l2:"} {
			version := path(fmt.Sprintf("..version-%d", n))
			must(t, os.Mkdir(version, 0o755))
			must(t, os.WriteFile(filepath.Join(version, "z.yaml"), []byte(manifest("cluster-a", up, 1, prefix(p))), 0o644))
			must(t, os.Symlink(filepath.Base(version), path("..data_tmp")))
			must(t, os.Rename(path("..data_tmp"), path("..data")))
			if n == 0 {
				must(t, os.Symlink("..data/z.yaml", path("z.tmp")))
				must(t, os.Rename(path("z.tmp"), path("z.yaml")))
			}
			changed.count(t, px, "cluster-a", 200, `"`+p+`alice"`)
		}
	})
	t.Run("a file that takes the place of another", func(t *testing.T) {
		px.MustWrite(t, "a.yaml", cluster("cluster-a", up, 1, nil)...)
		must(t, os.Remove(path("z.yaml")))
		changed.count(t, px, "cluster-a", 200, `"t:alice"`)
	})
	t.Run("another cluster comes and goes", func(t *testing.T) {
		list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": cluster("cluster-b", up, 1, nil)})
		must(t, err)
		must(t, px.WriteManifest("b.json", string(list)))
		changed.count(t, px, "cluster-b", 200, "")
		must(t, px.RemoveManifest("b.json"))
		changed.count(t, px, "cluster-b", 404, "")
		px.MustWrite(t, "b.yml", cluster("cluster-b", up, 1, nil)...)
		changed.count(t, px, "cluster-b", 200, "")
		must(t, px.RemoveManifest("b.yml"))
		changed.count(t, px, "cluster-b", 404, "")
	})
	now := px.MustServe(t, namespace, "cluster-a").Status.ObservedGeneration
	if want := generation + 7; now != want {
		t.Errorf("observedGeneration is %d after seven accepted versions, want %d", now, want)
	}
	changed.judge(t)
	allAlive(t, streams)
}

// CONF-6: an editor that takes its time over a file: what is there meanwhile
// does not count.
func TestCONF6WrittenSlowly(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	content := func(prefix string) string {
		return manifest("cluster-a", up, 1, func(s *v1.ProxyKubeApiSpec) {
			s.UpstreamAuth.UserPrefix, s.UpstreamAuth.GroupPrefix = &prefix, &prefix
		})
	}
	for attempt := 0; ; attempt++ {
		px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
		px.MustServe(t, namespace, "cluster-a")
		streams := openStreams(t, px, "cluster-a")
		pauses := writeSlowly(t, filepath.Join(px.Directory, "a.yaml"), content("s:"))
		if pauses > 150*time.Millisecond {
			// This writer was stopped for so long that the file stood still.
			if attempt == 20 {
				t.Fatal("this machine is too slow for a file that is written slowly")
			}
			px.Stop()
			continue
		}
		waitBody(t, px, "cluster-a", `"s:alice"`)
		allAlive(t, streams)
		s := px.MustServe(t, namespace, "cluster-a")
		if s.Status.ObservedGeneration != 2 || s.Condition("UpdateRefused") != nil || logged(t, px, "a.yaml") != 0 {
			t.Errorf("half a file counted: generation %d, %v, %d lines in the log", s.Status.ObservedGeneration, s.Condition("UpdateRefused"), logged(t, px, "a.yaml"))
		}
		return
	}
}

// writeSlowly empties a file and writes it in parts. It returns the longest
// time that the file stood still.
func writeSlowly(t *testing.T, path, content string) time.Duration {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const parts = 20
	last, longest := time.Now(), time.Duration(0)
	for i := range parts {
		time.Sleep(30 * time.Millisecond)
		if _, err := f.WriteString(content[len(content)*i/parts : len(content)*(i+1)/parts]); err != nil {
			t.Fatal(err)
		}
		longest, last = max(longest, time.Since(last)), time.Now()
	}
	return longest
}

func waitBody(t *testing.T, px *proxy.Proxy, name, text string) {
	t.Helper()
	new(changes).count(t, px, name, 200, text)
}

// CONF-6: what is refused leaves the version that serves in force, and says so.
func TestCONF6Refused(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	generation := px.MustServe(t, namespace, "cluster-a").Status.ObservedGeneration
	streams := openStreams(t, px, "cluster-a")
	reserved := "system:"
	good := manifest("cluster-a", up, 1, nil)
	for _, tc := range []struct {
		name, content string
		// message is a part of what UpdateRefused says.
		message string
	}{
		{"a rule of admission", manifest("cluster-a", up, 1, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.GroupPrefix = &reserved }), "group_prefix"},
		{"an unknown field", strings.Replace(good, "\nspec:\n", "\nspec:\n  enabeld: true\n", 1), "enabeld"},
		{"an unknown mode", strings.Replace(good, "mode: FrontProxy", "mode: Impersonate", 1), "mode"},
		{"two services", strings.Replace(good, "ExternalService:", "Agent: {}\n    ExternalService:", 1), "service"},
		{"a plain URL", strings.Replace(good, "url: https://127", "url: http://127", 1), "url"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.content == good {
				t.Fatal("the content is the good one")
			}
			if err := px.WriteManifest("a.yaml", tc.content); err != nil {
				t.Fatal(err)
			}
			s := px.MustCluster(t, namespace, "cluster-a", func(s *proxy.ClusterStatus) bool {
				c := s.Condition("UpdateRefused")
				return c != nil && strings.Contains(c.Message, tc.message)
			})
			if s.Ready() != "True/Serving" || s.Status.ObservedGeneration != generation || s.Status.Error == nil || !strings.Contains(*s.Status.Error, tc.message) {
				t.Errorf("status %s, generation %d, error %v", s.Ready(), s.Status.ObservedGeneration, s.Status.Error)
			}
			if a := get(t, px, "cluster-a"); a.Code != 200 || !strings.Contains(a.Body, `"t:alice"`) {
				t.Errorf("answered %d %s", a.Code, a.Body)
			}
			allAlive(t, streams)
			r, err := px.Command(t.Context(), "proxyauth", "status", "--address", px.Admin)
			if err != nil || !strings.Contains(r.Stdout, tc.message) {
				t.Errorf("caddy proxyauth status: %v\n%s", err, r.Stdout)
			}
		})
	}
	t.Run("a file that does not parse", func(t *testing.T) {
		for _, content := range []string{"{", "- not\n- objects\n", good + "---\n\tapiVersion", "apiVersion: weebo.si.rs/v1\n"} {
			before := logged(t, px, "a.yaml")
			if err := px.WriteManifest("a.yaml", content); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the log tells of the file", patience, func() error {
				if n := logged(t, px, "a.yaml"); n != before+1 {
					return fmt.Errorf("%d lines, %d before", n, before)
				}
				return nil
			})
			r, err := px.Command(t.Context(), "proxyauth", "status", "--address", px.Admin)
			if err != nil || !strings.Contains(r.Stdout, "REFUSED FILE") {
				t.Errorf("caddy proxyauth status of %q: %v\n%s", content, err, r.Stdout)
			}
			if a := get(t, px, "cluster-a"); a.Code != 200 {
				t.Errorf("answered %d %s", a.Code, a.Body)
			}
		}
		allAlive(t, streams)
	})
	t.Run("repaired", func(t *testing.T) {
		if err := px.WriteManifest("a.yaml", good); err != nil {
			t.Fatal(err)
		}
		s := px.MustCluster(t, namespace, "cluster-a", func(s *proxy.ClusterStatus) bool { return s.Condition("UpdateRefused") == nil })
		if s.Status.ObservedGeneration != generation {
			t.Errorf("generation %d: the version of before was accepted once only", s.Status.ObservedGeneration)
		}
		allAlive(t, streams)
	})
	t.Run("never accepted", func(t *testing.T) {
		px.MustWrite(t, "b.yaml", cluster("cluster-b", up, 1, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.UserPrefix = nil })...)
		s := px.MustCluster(t, namespace, "cluster-b", func(*proxy.ClusterStatus) bool { return true })
		if s.Ready() != "False/InvalidSpec" {
			t.Errorf("status %s", s.Ready())
		}
		if a := get(t, px, "cluster-b"); a.Code != 503 || !strings.Contains(a.Body, "InvalidSpec") {
			t.Errorf("answered %d %s", a.Code, a.Body)
		}
	})
	t.Run("the same object twice", func(t *testing.T) {
		other := "u:"
		px.MustWrite(t, "00.yaml", cluster("cluster-a", up, 1, func(s *v1.ProxyKubeApiSpec) {
			s.UpstreamAuth.UserPrefix, s.UpstreamAuth.GroupPrefix = &other, &other
		})[0])
		px.MustCluster(t, namespace, "cluster-a", func(s *proxy.ClusterStatus) bool { return s.Condition("UpdateRefused") != nil })
		if a := get(t, px, "cluster-a"); a.Code != 200 || !strings.Contains(a.Body, `"t:alice"`) {
			t.Errorf("not the running one: %d %s", a.Code, a.Body)
		}
		if err := px.RemoveManifest("00.yaml"); err != nil {
			t.Fatal(err)
		}
		px.MustCluster(t, namespace, "cluster-a", func(s *proxy.ClusterStatus) bool { return s.Condition("UpdateRefused") == nil })
	})
	t.Run("the directory is away", func(t *testing.T) {
		away := px.Directory + ".away"
		if err := os.Rename(px.Directory, away); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the log tells of it", patience, func() error {
			if !strings.Contains(px.Everything(), "the directory is unreadable: everything stays as it is") {
				return fmt.Errorf("it does not")
			}
			return nil
		})
		if a := get(t, px, "cluster-a"); a.Code != 200 {
			t.Errorf("answered %d %s", a.Code, a.Body)
		}
		if err := os.Rename(away, px.Directory); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(px.Directory, "a.yaml"), []byte(manifest("cluster-a", up, 1, func(s *v1.ProxyKubeApiSpec) {
			group := "nobody"
			s.ProxyGroup = &group
		})), 0o644); err != nil {
			t.Fatal(err)
		}
		new(changes).count(t, px, "cluster-a", 403, "not a member")
		allAlive(t, streams)
	})
}

// logged counts the warnings about a file.
func logged(t *testing.T, px *proxy.Proxy, file string) int {
	t.Helper()
	entries, err := px.Log()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if e.Text("file") == file && e.Text("level") == "warn" {
			n++
		}
	}
	return n
}
