package directory

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// dirModel is what CONF-6 promises, in the simplest words: what each file last
// gave, and the version of each object in force.
type dirModel struct {
	// files holds, for each file, the versions of the objects it gave when it
	// last parsed: "" is a version that admission refuses.
	files map[string]map[string]string
	// last is the version last accepted while the object existed.
	last map[string]string
}

// check holds the directory to the model.
func (m *dirModel) check(t *rapid.T, rig *dirRig) {
	holders := map[string][]string{}
	for _, file := range slices.Sorted(maps.Keys(m.files)) {
		for name := range m.files[file] {
			holders[name] = append(holders[name], file)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		object := rig.Object(dirKey(name))
		switch in := holders[name]; {
		case len(in) == 0:
			delete(m.last, name)
			if object != nil {
				t.Fatalf("%s is in no file, and there: %+v", name, object)
			}
			continue
		case object == nil:
			t.Fatalf("%s is in %v, and not there", name, in)
		case len(in) == 1:
			if version := m.files[in[0]][name]; version != "" {
				m.last[name] = version
			}
			want := m.last[name]
			if got := rig.url(name); got != want {
				t.Fatalf("%s is at %q, want %q", name, got, want)
			}
			if refused := m.files[in[0]][name] == ""; refused && object.Invalid == "" && object.UpdateRefused == "" {
				t.Fatalf("%s is refused, and nothing says so", name)
			}
		default:
			// Twice: a version that some file gives, or the one that ran.
			got := rig.url(name)
			possible := []string{m.last[name]}
			for _, file := range in {
				possible = append(possible, m.files[file][name])
			}
			if !slices.Contains(possible, got) {
				t.Fatalf("%s is at %q, want one of %q", name, got, possible)
			}
			if m.last[name] != "" && got == "" {
				t.Fatalf("%s ran, and does no longer", name)
			}
			if object.Invalid == "" && object.UpdateRefused == "" {
				t.Fatalf("%s is in %v, and nothing says so", name, in)
			}
			if got != "" {
				m.last[name] = got
			}
		}
	}
}

// CONF-6 over any history of edits: nothing that runs stops for a bad edit, what
// is removed goes, generations only count on.
func TestDirectoryHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rig := newDirRig(t, nil)
		model := &dirModel{files: map[string]map[string]string{}, last: map[string]string{}}
		generations := map[string]int64{}
		names := rapid.SampledFrom([]string{"1.yaml", "2.yaml", "3.json.yaml"})
		version := 0
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				text, gives := "", map[string]string{}
				for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(t, "objects") {
					version++
					url := fmt.Sprintf("https://%d", version)
					if rapid.IntRange(0, 3).Draw(t, "good") == 0 {
						gives[name], url = "", "http://refused"
					} else {
						gives[name] = url
					}
					text += dirCluster(name, url)
				}
				file := names.Draw(t, "file")
				rig.rewrite(file, text)
				model.files[file] = gives
			},
			"break": func(t *rapid.T) {
				file := names.Draw(t, "file")
				rig.rewrite(file, "[ no YAML")
				if model.files[file] == nil {
					model.files[file] = map[string]string{}
				}
			},
			"remove": func(t *rapid.T) {
				file := names.Draw(t, "file")
				rig.remove(file)
				rig.settle()
				delete(model.files, file)
			},
			"move": func(t *rapid.T) {
				from, to := names.Draw(t, "from"), names.Draw(t, "to")
				if from == to || model.files[from] == nil || rig.files[from].problem != "" {
					return
				}
				dirMust(rig.t, os.Rename(filepath.Join(rig.path, from), filepath.Join(rig.path, to)))
				rig.settle()
				model.files[to] = model.files[from]
				delete(model.files, from)
			},
			"": func(t *rapid.T) {
				model.check(t, rig)
				for _, key := range rig.Keys() {
					got := rig.Object(key).ProxyKubeApi.Generation
					if id := string(rig.Object(key).ProxyKubeApi.UID); got < generations[id] {
						t.Fatalf("%s went from generation %d to %d", key, generations[id], got)
					} else {
						generations[id] = got
					}
				}
			},
		})
	})
}
