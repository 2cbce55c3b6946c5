package directory

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

// CONF-6: a file that does not parse keeps what it last gave.
func TestDirectoryKeepsWhatAFileGave(t *testing.T) {
	const secret = "hunter2"
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	var wide strings.Builder
	fmt.Fprintf(&wide, "a: &a %s\n", strings.Repeat("x", 1<<20))
	for i := range 100 {
		fmt.Fprintf(&wide, "k%d: *a\n", i)
	}
	tests := []struct{ name, file, text, reason string }{
		{"no YAML", "a.yaml", "a: b: c\n" + secret, "mapping values are not allowed in this context"},
		{"no YAML with a line", "a.yaml", "a: 1\nb: [1\n" + secret, "line 3: did not find expected ',' or ']'"},
		{"a tab", "a.yaml", "a:\n\tb: " + secret, "line 2: found character that cannot start any token"},
		{"a key twice", "a.yaml", "a: 1\na: " + secret, `line 2: a key is there twice: "a"`},
		{"a key twice deep down", "a.yaml", "a:\n  b:\n  - c: 1\n    service: 1\n    service: 2\n", `line 5: a key is there twice: "service"`},
		{"an unusual key twice", "a.yaml", "'a " + secret + "': 1\n'a " + secret + "': 2\n", "line 2: a key is there twice"},
		{"true and 'true'", "a.yaml", "true: 1\n'true': " + secret, `a key is there twice: "true"`},
		{"an unknown anchor", "a.yaml", "password: *" + secret, "an alias names an anchor that does not exist"},
		{"a template", "a.yaml", "password: {{ " + secret + " }}", "a key is itself a mapping or a list"},
		{"a bomb of aliases", "a.yaml", bomb, "document contains excessive aliasing"},
		{"aliases of a long text", "a.yaml", wide.String(), "document 1: it holds too much, aliases repeated"},
		{"an anchor that contains itself", "a.yaml", "a: &a [*a, " + secret + "]", "is not YAML"},
		{"too deep", "a.yaml", strings.Repeat("[", 20000), "exceeded max depth of 10000"},
		{"a float as key", "a.yaml", "1.5: " + secret, "document 1: a key is no text"},
		{"not a number", "a.yaml", "a: .nan", "document 1: a number is not finite"},
		{"binary", "a.yaml", "a: !!binary /w==", "document 1: the text is not UTF-8"},
		{"a scalar", "a.yaml", secret, "document 1: is no object"},
		{"a list of objects", "a.yaml", "- a: " + secret, "document 1: is no object"},
		{"no kind", "a.yaml", "password: " + secret, "document 1: has no apiVersion and kind"},
		{"a second document that is none", "a.yaml", dirCluster("a", "https://2") + "---\n" + secret, "document 2: is no object"},
		{"an item that is no object", "a.yaml", "{apiVersion: v1, kind: List, items: [" + secret + "]}", "document 1: item 1: is no object"},
		{"an item without kind", "a.yaml", "{apiVersion: v1, kind: List, items: [{a: b}]}", "document 1: item 1: has no apiVersion and kind"},
		{"items that are no list", "a.yaml", "{apiVersion: v1, kind: List, items: {a: b}}", "document 1: the items of a List are no list"},
		{"a List with an unknown field", "a.yaml", "{apiVersion: v1, kind: List, item: []}", `document 1: a List has the unknown field "item"`},
		{"UTF-16", "a.yaml", "\xff\xfea\x00", "the text is not UTF-8"},
		{"Latin 1", "a.yaml", "# \xe9\n", "the text is not UTF-8"},
		{"a control character", "a.yaml", "a: \x01", "control characters are not allowed"},
		{"too large", "a.yaml", "#" + strings.Repeat(" ", maxFileSize), "is larger than 4 MiB"},
		{"no JSON", "a.json", "{\n\"a\": " + secret + "}", "line 2: is not JSON"},
		{"half JSON", "a.json", `{"a": "` + secret, "line 1: is not JSON"},
		{"JSON with a key twice", "a.json", `{"a": {"b": 1, "b": "` + secret + `"}}`, `document 1: a key is there twice: "a.b"`},
		{"JSON with a number that is too large", "a.json", `{"a": 1e999}`, "a number is not finite"},
		{"YAML under a JSON name", "a.json", "a: " + secret, "line 1: is not JSON"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			good := map[string]string{"a.yaml": dirCluster("a", "https://1"), "a.json": `{"apiVersion": "weebo.si.rs/v1", "kind": "ProxyKubeApi", "metadata": {"name": "a", "namespace": "team-a"}, "spec": {"service": {"ExternalService": {"url": "https://1"}}}}`}[test.file]
			rig := newDirRig(t, map[string]string{test.file: good})
			if !rig.rewrite(test.file, test.text) {
				t.Fatal("nothing changed")
			}
			if got := rig.url("a"); got != "https://1" {
				t.Errorf("in force: %q", got)
			}
			reason := rig.refusedUpdate("a")
			if !strings.HasPrefix(reason, test.file+": ") || !strings.Contains(reason, test.reason) {
				t.Errorf("UpdateRefused = %q, want %q", reason, test.reason)
			}
			if n := rig.logged(test.reason); n != 1 {
				t.Errorf("%d log lines", n)
			}
			if strings.Contains(reason, secret) || rig.logged(secret) > 0 {
				t.Errorf("a value is shown: %q", reason)
			}
			rig.rewrite(test.file, good)
			if got := rig.url("a") + rig.refusedUpdate("a"); got != "https://1" {
				t.Errorf("after the repair: %q", got)
			}
			if generation := rig.Object(dirKey("a")).ProxyKubeApi.Generation; generation != 1 {
				t.Errorf("generation %d", generation)
			}
		})
	}
}

// What is in the way of a file keeps what it last gave too, and blocks nothing:
// a FIFO would wait for ever.
func TestDirectoryWithOtherThanFiles(t *testing.T) {
	tests := []struct {
		name, reason string
		make         func(t *testing.T, path string)
	}{
		{"a folder", "is no regular file", func(t *testing.T, path string) { dirMust(t, os.Mkdir(path, 0o700)) }},
		{"a FIFO", "is no regular file", func(t *testing.T, path string) { dirMust(t, syscall.Mkfifo(path, 0o600)) }},
		{"a link to a device", "is no regular file", func(t *testing.T, path string) { dirMust(t, os.Symlink("/dev/zero", path)) }},
		{"a link to itself", "too many levels of symbolic links", func(t *testing.T, path string) { dirMust(t, os.Symlink(path, path)) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
			rig.remove("a.yaml")
			test.make(t, filepath.Join(rig.path, "a.yaml"))
			rig.settle()
			if got := rig.url("a"); got != "https://1" {
				t.Errorf("in force: %q", got)
			}
			if got := rig.refusedUpdate("a"); !strings.HasPrefix(got, "a.yaml: cannot be read: ") || !strings.Contains(got, test.reason) {
				t.Errorf("UpdateRefused = %q", got)
			}
			// From the start it gives nothing, and the others count.
			rig = newDirRig(t, map[string]string{"b.yaml": dirCluster("b", "https://b")})
			test.make(t, filepath.Join(rig.path, "a.yaml"))
			rig.settle()
			if got := rig.url("b"); got != "https://b" || rig.logged(test.reason) != 1 {
				t.Errorf("b = %q; %v", got, rig.logs.All())
			}
		})
	}
	t.Run("a FIFO that comes while the file is opened", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a.yaml")
		dirMust(t, os.WriteFile(path, nil, 0o600))
		info, err := os.Stat(path)
		dirMust(t, err)
		dirMust(t, os.Remove(path))
		dirMust(t, syscall.Mkfifo(path, 0o600))
		if _, err := readRegular(path, info); err != errNotRegular {
			t.Errorf("readRegular = %v", err)
		}
	})
	t.Run("a link to nothing is no file", func(t *testing.T) {
		rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
		rig.remove("a.yaml")
		dirMust(t, os.Symlink("nowhere", filepath.Join(rig.path, "a.yaml")))
		rig.settle()
		if rig.Object(dirKey("a")) != nil {
			t.Error("the object is still there")
		}
	})
}

// An object that cannot be told apart from one of before (its namespace was
// lost in an edit) must not delete it.
func TestDirectoryWithNamelessObjects(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1") + dirCluster("b", "https://1") + dirSecret("s", "v"), "z.yaml": dirCluster("z", "https://1")})
	rig.rewrite("a.yaml", strings.Replace(dirCluster("a", "https://2"), ", namespace: team-a", "", 1)+dirCluster("b", "https://2"))
	if got := rig.url("a") + rig.url("b") + rig.secret("s"); got != "https://1https://2v" {
		t.Errorf("in force: %q", got)
	}
	if got := rig.refusedUpdate("a"); got != "a.yaml: ProxyKubeApi a has no metadata.namespace" {
		t.Errorf("UpdateRefused = %q", got)
	}
	if got := rig.refusedUpdate("b") + rig.refusedUpdate("z"); got != "" {
		t.Errorf("UpdateRefused of others = %q", got)
	}
	rig.rewrite("a.yaml", dirCluster("b", "https://2"))
	if rig.Object(dirKey("a")) != nil || rig.secret("s") != "" {
		t.Error("still there after the repair")
	}
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

// A file counts when it has stood still: one that is being written may parse.
func TestDirectoryWaitsForWriters(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1") + dirCluster("b", "https://1")})
	both := func(want string) {
		t.Helper()
		if got := rig.url("a") + " " + rig.url("b"); got != want {
			t.Errorf("in force: %q, want %q", got, want)
		}
	}
	rig.write("a.yaml", dirCluster("a", "https://2"))
	rig.look(0)
	both("https://1 https://1")
	rig.write("a.yaml", dirCluster("a", "https://2")+dirCluster("b", "https://2"))
	rig.look(settle)
	both("https://1 https://1")
	rig.look(settle)
	both("https://2 https://2")

	rig.write("a.yaml", "")
	rig.look(0)
	rig.look(settle)
	both("https://2 https://2")
	rig.write("a.yaml", dirCluster("a", "https://3")+dirCluster("b", "https://3"))
	rig.look(settleGone)
	both("https://2 https://2")
	rig.look(settle)
	both("https://3 https://3")

	rig.remove("a.yaml")
	rig.look(0)
	rig.look(settle)
	both("https://3 https://3")
	rig.write("a.yaml", dirCluster("a", "https://3")+dirCluster("b", "https://3"))
	rig.look(settleGone)
	rig.look(settleGone)
	both("https://3 https://3")
	if n := rig.logged("object removed"); n != 0 {
		t.Errorf("%d objects were removed on the way", n)
	}
	rig.remove("a.yaml")
	rig.settle()
	both(" ")
}

// A moved file is no moment with its objects twice, nor without them.
func TestDirectoryWithAMovedFile(t *testing.T) {
	for _, names := range [][2]string{{"a.yaml", "b.yaml"}, {"b.yaml", "a.yaml"}} {
		rig := newDirRig(t, map[string]string{names[0]: dirCluster("a", "https://1")})
		uid := rig.Object(dirKey("a")).ProxyKubeApi.UID
		dirMust(t, os.Rename(filepath.Join(rig.path, names[0]), filepath.Join(rig.path, names[1])))
		for range 6 {
			if rig.look(settle / 2) {
				t.Errorf("%s to %s: something changed: %+v", names[0], names[1], rig.Object(dirKey("a")))
			}
		}
		rig.rewrite(names[1], dirCluster("a", "https://2"))
		if got := rig.Object(dirKey("a")); rig.url("a") != "https://2" || got.ProxyKubeApi.UID != uid {
			t.Errorf("%s to %s: %+v", names[0], names[1], got)
		}
		if len(rig.files) != 1 {
			t.Errorf("%s to %s: the old file is remembered", names[0], names[1])
		}
	}
}

// An unreadable directory changes nothing later (CONF-6).
func TestDirectoryGoesAway(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirCluster("a", "https://1")})
	elsewhere := rig.path + "-elsewhere"
	dirMust(t, os.Rename(rig.path, elsewhere))
	for range 3 {
		if rig.settle() {
			t.Error("something changed")
		}
	}
	if got := rig.url("a"); got != "https://1" {
		t.Errorf("in force: %q", got)
	}
	if n := rig.logged("the directory is unreadable"); n != 1 {
		t.Errorf("%d log lines", n)
	}
	if rig.logged(rig.path) > 0 {
		t.Error("a path is logged")
	}
	dirMust(t, os.WriteFile(rig.path, nil, 0o600))
	if rig.settle() || rig.logged("the directory is unreadable") != 2 {
		t.Errorf("with a file in its place: %v", rig.logs.All())
	}
	dirMust(t, os.Remove(rig.path))
	dirMust(t, os.Rename(elsewhere, rig.path))
	rig.rewrite("a.yaml", dirCluster("a", "https://2"))
	if got := rig.url("a"); got != "https://2" {
		t.Errorf("back again: %q", got)
	}
}

// Names of files are the author's too: they are quoted where they would break
// a line.
func TestDirectoryQuotesNames(t *testing.T) {
	name := "a\n\x1b[31m.yaml"
	rig := newDirRig(t, map[string]string{name: dirCluster("a", "http://1")})
	if got := rig.Object(dirKey("a")).Invalid; !strings.HasPrefix(got, `"a\n\x1b[31m.yaml": spec.`) {
		t.Errorf("Invalid = %q", got)
	}
	if got := displayName(strings.Repeat("é", 300)); len(got) > 600 {
		t.Errorf("displayName has %d bytes", len(got))
	}
}

// The bytes of a file are not kept: they may be a Secret's, twice.
func TestDirectoryForgetsTexts(t *testing.T) {
	rig := newDirRig(t, map[string]string{"a.yaml": dirSecret("a", "v"), "b.yaml": "["})
	rig.settle()
	for name, file := range maps.All(rig.files) {
		if file.seen.text != nil || file.inForce.text != nil {
			t.Errorf("the text of %s is kept", name)
		}
	}
}
