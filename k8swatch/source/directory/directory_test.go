package directory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// CONF-6: the kinds, the endings, Lists, several documents in a file.
func TestDirectoryReads(t *testing.T) {
	rig := newDirRig(t, map[string]string{
		"a.yaml": dirCluster("a", "https://a") + "---\n# nothing\n" + dirSecret("a", "s") + dirConfigMap("a", "c"),
		"b.yml":  "\uFEFF" + strings.ReplaceAll(dirCluster("b", "https://b"), "\n", "\r\n"),
		"c.json": `{"apiVersion": "weebo.si.rs/v1", "kind": "ProxyKubeApi", "metadata": {"name": "c", "namespace": "team-a"}, "spec": {"service": {"ExternalService": {"url": "https://c"}}}}
			{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c", "namespace": "team-a"}, "data": {"key": "c2VjcmV0"}}`,
		"d.yaml": "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- {apiVersion: weebo.si.rs/v1, kind: ProxyKubeApi, metadata: {name: d, namespace: team-a}, spec: {service: {ExternalService: {url: https://d}}}}\n" +
			"- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: team-a}, data: {key: v}}]}\n",
		"e.yaml": "apiVersion: weebo.si.rs/v1\nkind: ProxyKubeApiList\nitems:\n- {metadata: {name: e, namespace: team-a}, spec: {service: {ExternalService: {url: https://e}}}}\n",
		"f.yaml": `{"apiVersion": "weebo.si.rs/v1", "kind": "ProxyKubeApi", "metadata": {"name": "f", "namespace": "team-a", "annotations": {"a": "\ud83d\ude00"}}, "spec": {"service": {"ExternalService": {"url": "https:\/\/f"}}}}`,
		"g.yaml": "--- # a comment\n{apiVersion: weebo.si.rs/v1, kind: ProxyKubeApi, metadata: {name: g, namespace: team-a}, spec: {service: {ExternalService: {url: 'https://g'}}}}\n...\n",
		"h.yaml": "",
		// Not looked at.
		".hidden.yaml": dirCluster("hidden", "https://h"),
		"x.yaml.bak":   dirCluster("bak", "https://h"),
		"x.YAML":       dirCluster("upper", "https://h"),
		"noext":        dirCluster("noext", "https://h"),
	})
	var names []string
	for _, key := range rig.Keys() {
		names = append(names, key.Name)
		if got, want := rig.url(key.Name), "https://"+key.Name; got != want {
			t.Errorf("%s is at %q, want %q", key.Name, got, want)
		}
	}
	if want := []string{"a", "b", "c", "d", "e", "f", "g"}; !slices.Equal(names, want) {
		t.Errorf("Keys = %v, want %v", names, want)
	}
	if got := rig.Object(dirKey("f")).ProxyKubeApi.Annotations["a"]; got != "😀" {
		t.Errorf("annotation = %q", got)
	}
	if got := []string{rig.secret("a"), rig.secret("c")}; !slices.Equal(got, []string{"s", "secret"}) {
		t.Errorf("Secrets = %q", got)
	}
	if configMap, err := rig.ConfigMap("team-a", "d"); err != nil || configMap.Data["key"] != "v" {
		t.Errorf("ConfigMap = %v, %v", configMap, err)
	}
}

func TestDirectoryNamesWhatIsNotThere(t *testing.T) {
	d, err := New(t.TempDir(), nil)
	dirMust(t, err)
	if _, err := d.Secret("a", "b"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("before the first list: %v, want an error that says nothing is known", err)
	}
	if _, err := d.ConfigMap("a", "b"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("before the first list: %v, want an error that says nothing is known", err)
	}
	if d.Keys() != nil || d.Object(dirKey("a")) != nil {
		t.Error("objects before the first list")
	}
	rig := newDirRig(t, map[string]string{"a.yaml": dirSecret("a", "s")})
	if _, err := rig.Secret("team-a", "b"); !apierrors.IsNotFound(err) {
		t.Errorf("Secret: %v", err)
	}
	if _, err := rig.ConfigMap("team-a", "a"); !apierrors.IsNotFound(err) {
		t.Errorf("ConfigMap: %v", err)
	}
	if rig.Object(dirKey("b")) != nil {
		t.Error("an object that is not there")
	}
	// CONF-6: a KubernetesService is ServiceNotFound.
	if _, err := rig.Service("default", "kubernetes"); !apierrors.IsNotFound(err) {
		t.Errorf("Service: %v", err)
	}
}

// CONF-6: other kinds are skipped with one log line.
func TestDirectorySkipsOtherKinds(t *testing.T) {
	namespace := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n"
	rig := newDirRig(t, map[string]string{
		"a.yaml": fmt.Sprintf(namespace, "a") + dirCluster("a", "https://a") + fmt.Sprintf(namespace, "b") + "---\n{apiVersion: notweebo.si.rs/v1, kind: Other}\n---\n{apiVersion: apps/v1, kind: Secret}\n",
	})
	if got := rig.url("a"); got != "https://a" {
		t.Errorf("a = %q", got)
	}
	for _, kind := range []string{"v1 Namespace", "notweebo.si.rs/v1 Other", "apps/v1 Secret"} {
		if n := rig.logged("kind:" + kind); n != 1 {
			t.Errorf("%d log lines about %s", n, kind)
		}
	}
	rig.settle()
	if n := rig.logged("skipped"); n != 3 {
		t.Errorf("%d log lines about skipped kinds after another look", n)
	}
}

// CONF-6: a missing namespace or an unknown field is refused, and whatever
// else an apiserver would not have.
func TestDirectoryRefusesObjects(t *testing.T) {
	meta := "metadata: {name: x, namespace: team-a}\n"
	tests := []struct{ name, text, reason string }{
		{"ProxyKubeApi with an unknown field", "apiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\n" + meta + "spec: {service: {Agent: {}}, servcie: {}}\n", `unknown field "spec.servcie"`},
		{"ProxyKubeApi that breaks a rule", "apiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\n" + meta + "spec: {service: {}}\n", "spec.service: Invalid value: service: exactly one of ExternalService, KubernetesService, Agent must be set"},
		{"ProxyKubeApi without namespace", "apiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\nmetadata: {name: x}\nspec: {service: {Agent: {}}}\n", "ProxyKubeApi x has no metadata.namespace"},
		{"ProxyKubeApi without name", "apiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\nmetadata: {generateName: x, namespace: team-a}\nspec: {service: {Agent: {}}}\n", "a ProxyKubeApi has no metadata.name"},
		{"ProxyKubeApi with no name", "apiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\nmetadata: {name: \"X\\n\", namespace: team-a}\nspec: {service: {Agent: {}}}\n", `a ProxyKubeApi has the metadata.name "X\n", which is no name`},
		{"ProxyKubeApi with no namespace", "apiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\nmetadata: {name: x, namespace: a.b}\nspec: {service: {Agent: {}}}\n", `ProxyKubeApi x has the metadata.namespace "a.b", which is no name`},
		{"Secret without namespace", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", "Secret x has no metadata.namespace"},
		{"Secret with an unknown field", "apiVersion: v1\nkind: Secret\n" + meta + "string_data: {a: b}\n", `unknown field "string_data"`},
		{"Secret with a field in another case", "apiVersion: v1\nkind: Secret\n" + meta + "stringdata: {a: b}\n", `unknown field "stringdata"`},
		{"Secret that is no base64", "apiVersion: v1\nkind: Secret\n" + meta + "data: {a: 'hunter2!'}\n", `data["a"] is no base64`},
		{"Secret with a number", "apiVersion: v1\nkind: Secret\n" + meta + "data: {a: 12345}\n", `data["a"] is no text`},
		{"Secret with a number as text", "apiVersion: v1\nkind: Secret\n" + meta + "stringData: {a: 12345}\n", `the field "stringData" has the wrong type`},
		{"Secret with a bad key", "apiVersion: v1\nkind: Secret\n" + meta + "stringData: {a/b: c}\n", `data has the key "a/b", which is no key`},
		{"Secret of a list", "apiVersion: v1\nkind: Secret\n" + meta + "data: []\n", `the field "data" has the wrong type`},
		{"TLS Secret without key", "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\n" + meta + "stringData: {tls.crt: c}\n", "data has no tls.key, which the type kubernetes.io/tls needs"},
		{"Secret that is too large", "apiVersion: v1\nkind: Secret\n" + meta + "stringData: {a: " + strings.Repeat("x", 1<<20) + "y}\n", "data holds 1048577 bytes, more than 1048576"},
		{"ConfigMap with an unknown field", "apiVersion: v1\nkind: ConfigMap\n" + meta + "Data: {a: b}\n", `unknown field "Data"`},
		{"ConfigMap with a key twice", "apiVersion: v1\nkind: ConfigMap\n" + meta + "data: {a: b}\nbinaryData: {a: ''}\n", `the key "a" is in data and in binaryData`},
		{"ConfigMap that is no base64", "apiVersion: v1\nkind: ConfigMap\n" + meta + "binaryData: {a: '%'}\n", `binaryData["a"] is no base64`},
		{"ConfigMap with a bad key", "apiVersion: v1\nkind: ConfigMap\n" + meta + "data: {'': c}\n", `data has the key "", which is no key`},
		{"metadata of another type", "apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: team-a, labels: [a]}\n", `the field "metadata.labels" has the wrong type`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rig := newDirRig(t, map[string]string{"a.yaml": test.text + dirCluster("other", "https://o")})
			if rig.logged(test.reason) == 0 {
				t.Errorf("no log line says %s: %v", test.reason, rig.logs.All())
			}
			if rig.logged("hunter2") > 0 || rig.logged("12345") > 0 {
				t.Errorf("a value is logged: %v", rig.logs.All())
			}
			if rig.secret("x") != "" {
				t.Error("a refused Secret is there")
			}
			// The rest of the file counts.
			if got := rig.url("other"); got != "https://o" {
				t.Errorf("other = %q", got)
			}
		})
	}
}

// CONF-6: an object that admission would refuse leaves its previous version in
// force; observedGeneration counts accepted versions.
func TestDirectoryKeepsThePreviousVersion(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
	first := rig.Object(dirKey("a"))
	if first.ProxyKubeApi.Generation != 1 || first.ProxyKubeApi.UID == "" || first.ProxyKubeApi.ResourceVersion == "" || first.ProxyKubeApi.CreationTimestamp.IsZero() {
		t.Errorf("metadata = %+v", first.ProxyKubeApi.ObjectMeta)
	}

	rig.rewrite("a.yaml", dirCluster("a", "http://2"))
	object := rig.Object(dirKey("a"))
	if diff := cmp.Diff(first.ProxyKubeApi, object.ProxyKubeApi); diff != "" {
		t.Errorf("the version in force changed:\n%s", diff)
	}
	const reason = "a.yaml: spec.service.ExternalService.url: Invalid value: url must be an https:// URL with a host, an optional port and path, and no user, query or fragment"
	if object.UpdateRefused != reason || object.Invalid != "" {
		t.Errorf("UpdateRefused = %q, Invalid = %q", object.UpdateRefused, object.Invalid)
	}

	rig.rewrite("a.yaml", dirCluster("a", "https://1"))
	if object := rig.Object(dirKey("a")); object.UpdateRefused != "" || object.ProxyKubeApi.Generation != 1 {
		t.Errorf("after going back: %q, generation %d", object.UpdateRefused, object.ProxyKubeApi.Generation)
	}

	rig.rewrite("a.yaml", dirCluster("a", "https://3"))
	object = rig.Object(dirKey("a"))
	if object.ProxyKubeApi.Generation != 2 || object.ProxyKubeApi.UID != first.ProxyKubeApi.UID || object.ProxyKubeApi.CreationTimestamp != first.ProxyKubeApi.CreationTimestamp {
		t.Errorf("metadata of the second version = %+v", object.ProxyKubeApi.ObjectMeta)
	}
	if first.ProxyKubeApi.Spec.Service.ExternalService.URL != "https://1" {
		t.Error("a published object was changed")
	}
}

func TestDirectoryGeneration(t *testing.T) {
	labelled := strings.Replace(dirCluster("a", "https://1"), "namespace: team-a", "namespace: team-a, labels: {a: b}", 1)
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
	steps := []struct {
		name, text string
		changed    bool
		generation int64
	}{
		{"a comment", "# c\n" + dirCluster("a", "https://1"), false, 1},
		{"a default spelt out", strings.Replace(dirCluster("a", "https://1"), "spec: {", "spec: {enabled: true, ", 1), false, 1},
		{"a label", labelled, true, 1},
		{"fields of a server", strings.Replace(labelled, "labels", "uid: x, resourceVersion: '7', generation: 9, creationTimestamp: 2020-01-01T00:00:00Z, managedFields: [], labels", 1), false, 1},
		{"a status", labelled + "status: {path: /x}\n", false, 1},
		{"a spec", dirCluster("a", "https://2"), true, 2},
		{"another file", dirCluster("a", "https://2") + dirCluster("b", "https://2"), true, 2},
	}
	for _, step := range steps {
		before := rig.Object(dirKey("a")).ProxyKubeApi
		if changed := rig.rewrite("a.yaml", step.text); changed != step.changed {
			t.Errorf("%s: changed = %v, want %v", step.name, changed, step.changed)
		}
		got := rig.Object(dirKey("a")).ProxyKubeApi
		if got.Generation != step.generation {
			t.Errorf("%s: generation %d, want %d", step.name, got.Generation, step.generation)
		}
		if got.UID != before.UID {
			t.Errorf("%s: the UID changed", step.name)
		}
	}
}

// CONF-6: an object never accepted is listed with InvalidSpec.
func TestDirectoryListsWhatWasNeverAccepted(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "http://1")})
	object := rig.Object(dirKey("a"))
	if object == nil || !strings.HasPrefix(object.Invalid, "a.yaml: spec.service.ExternalService.url: ") || object.UpdateRefused != "" {
		t.Fatalf("Object = %+v", object)
	}
	if p := object.ProxyKubeApi; p.Name != "a" || p.Namespace != "team-a" || p.Generation != 0 || p.Spec.Service.ExternalService.URL != "http://1" || !*p.Spec.Enabled {
		t.Errorf("read %+v", p)
	}
	if keys := rig.Keys(); len(keys) != 1 {
		t.Errorf("Keys = %v", keys)
	}
	rig.rewrite("a.yaml", strings.Replace(dirCluster("a", "x"), "ExternalService: {url: 'x'}", "", 1))
	if got := rig.Object(dirKey("a")); !strings.Contains(got.Invalid, "exactly one of") || got.ProxyKubeApi.Spec.Service.ExternalService != nil {
		t.Errorf("after another refusal: %+v", got)
	}
	rig.rewrite("a.yaml", dirCluster("a", "https://1"))
	if got := rig.Object(dirKey("a")); got.Invalid != "" || got.ProxyKubeApi.Generation != 1 || got.ProxyKubeApi.UID != object.ProxyKubeApi.UID {
		t.Errorf("after the first acceptance: %+v", got)
	}
	rig.rewrite("a.yaml", "")
	if rig.Object(dirKey("a")) != nil {
		t.Error("still there after its removal")
	}
}

// CONF-6: the same object twice, the running one stays.
func TestDirectoryWithAnObjectTwice(t *testing.T) {
	t.Run("in another file", func(t *testing.T) {
		rig := newDirRig(t, map[string]string{"b.yaml": dirCluster("a", "https://b") + dirSecret("s", "b")})
		rig.rewrite("a.yaml", dirCluster("a", "https://a")+dirSecret("s", "a"))
		if got := rig.url("a") + rig.secret("s"); got != "https://bb" {
			t.Errorf("in force: %q", got)
		}
		const reason = "the object is in b.yaml and in a.yaml: the one in b.yaml stays"
		if got := rig.refusedUpdate("a"); got != reason {
			t.Errorf("UpdateRefused = %q", got)
		}
		if n := rig.logged(reason); n != 2 {
			t.Errorf("%d log lines, want one for each object", n)
		}
		// The running one can still be changed where it is.
		rig.rewrite("b.yaml", dirCluster("a", "https://b2")+dirSecret("s", "b2"))
		if got := rig.url("a") + rig.secret("s"); got != "https://b2b2" {
			t.Errorf("in force: %q", got)
		}
		// Without it, the other takes its place: the same object.
		uid := rig.Object(dirKey("a")).ProxyKubeApi.UID
		rig.remove("b.yaml")
		rig.settle()
		object := rig.Object(dirKey("a"))
		if got := rig.url("a") + rig.secret("s"); got != "https://aa" || object.UpdateRefused != "" || object.ProxyKubeApi.UID != uid || object.ProxyKubeApi.Generation != 3 {
			t.Errorf("in force: %q, %+v", got, object)
		}
	})
	t.Run("in the same file", func(t *testing.T) {
		rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
		rig.rewrite("a.yaml", dirCluster("a", "https://2")+dirCluster("a", "https://1"))
		if got := rig.url("a"); got != "https://1" {
			t.Errorf("in force: %q", got)
		}
		if got := rig.refusedUpdate("a"); got != "the object is in a.yaml twice: one of the two counts" {
			t.Errorf("UpdateRefused = %q", got)
		}
		rig.rewrite("a.yaml", dirCluster("a", "https://2")+dirCluster("a", "https://3"))
		if got := rig.url("a"); got != "https://1" {
			t.Errorf("in force: %q", got)
		}
		if got := rig.refusedUpdate("a"); got != "the object is in a.yaml twice: the running version stays" {
			t.Errorf("UpdateRefused = %q", got)
		}
		rig.rewrite("a.yaml", dirCluster("a", "https://3"))
		if got := rig.url("a") + rig.refusedUpdate("a"); got != "https://3" {
			t.Errorf("in force: %q", got)
		}
	})
	t.Run("from the start", func(t *testing.T) {
		rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "http://refused"), "b.yaml": dirCluster("a", "https://b"), "c.yaml": dirCluster("a", "https://c")})
		if got := rig.url("a"); got != "https://b" {
			t.Errorf("in force: %q, want the first that is accepted", got)
		}
	})
	t.Run("in two other files", func(t *testing.T) {
		rig := newDirRig(t, map[string]string{"b.yaml": dirCluster("a", "https://b")})
		rig.write("c.yaml", dirCluster("a", "https://c"))
		rig.write("d.yaml", dirCluster("a", "https://d"))
		rig.remove("b.yaml")
		rig.settle()
		if got := rig.url("a"); got != "https://b" {
			t.Errorf("in force: %q, want the running one", got)
		}
		if got := rig.refusedUpdate("a"); got != "the object is in c.yaml and in d.yaml: the running version stays" {
			t.Errorf("UpdateRefused = %q", got)
		}
		rig.remove("c.yaml")
		rig.settle()
		if got := rig.url("a") + rig.refusedUpdate("a"); got != "https://d" {
			t.Errorf("in force: %q", got)
		}
	})
}

// Deleting and making an object again makes another one.
func TestDirectoryUID(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1") + dirCluster("b", "https://1")})
	first := rig.Object(dirKey("a")).ProxyKubeApi
	if first.UID == rig.Object(dirKey("b")).ProxyKubeApi.UID {
		t.Error("two objects have one UID")
	}
	rig.rewrite("a.yaml", dirCluster("b", "https://1"))
	rig.rewrite("a.yaml", dirCluster("a", "https://2")+dirCluster("b", "https://1"))
	if again := rig.Object(dirKey("a")).ProxyKubeApi; again.UID == first.UID || again.Generation != 1 {
		t.Errorf("made again: UID %s (was %s), generation %d", again.UID, first.UID, again.Generation)
	}
	other := newDirRig(t, map[string]string{"x.yaml": dirCluster("a", "https://1")})
	if got := other.Object(dirKey("a")).ProxyKubeApi.UID; got != first.UID {
		t.Errorf("another process: UID %s, want %s", got, first.UID)
	}
}
