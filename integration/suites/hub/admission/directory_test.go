package admission

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// filed is a case that the product reads from a file of its directory, and what
// the apiserver makes of the same: of an object that is new, or one that takes
// the place of an accepted one.
type filed struct {
	namespace, name string
	real            verdict
}

func (f filed) key() string  { return f.namespace + "/" + f.name }
func (f filed) file() string { return f.namespace + "-" + f.name + ".yaml" }

const created, updated = "created", "updated"

// directory gives every case to the running product twice: as a file that is
// there at the start, and as one that replaces an object that serves. Each must
// fare as it does at the apiserver, and be refused by the same field with the
// same words (API-3, CONF-6).
func (j *judges) directory(t *testing.T) {
	specs := map[string]any{}
	for _, c := range readCases[verdictCase](t, "cases.yaml") {
		specs[c.Name] = c.Object["spec"]
	}
	for _, file := range []string{"rules.yaml", "full.yaml"} {
		for _, c := range readCases[ruleCase](t, file) {
			specs[c.Name+" ("+file+")"] = c.Spec
		}
	}
	up := rawserver.Start(t, rawserver.Options{NoIdentity: true})
	before := proxy.Cluster(updated, "base", up.URL, up.ServerCA).Spec
	before.AuthConfig = &v1.AuthConfig{DisableValidation: true}
	replace := j.replacing(t, before)

	files, next := map[string]string{}, map[string]string{}
	cases := map[string][2]filed{}
	for i, name := range slices.Sorted(maps.Keys(specs)) {
		first, second := filed{namespace: created, name: fmt.Sprint("c", i)}, filed{namespace: updated, name: fmt.Sprint("c", i)}
		var err, err2 error
		first.real, err = j.real(t.Context(), withSpec(specs[name]))
		second.real, err2 = replace(specs[name])
		if err := errors.Join(err, err2); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cases[name] = [2]filed{first, second}
		files[first.file()], files[second.file()] = text(t, first, specs[name]), proxy.Manifests(named(second, before))
		next[second.file()] = text(t, second, specs[name])
	}
	px := proxy.Start(t, proxy.Options{Manifests: files, LogLevel: "INFO"})
	clusters := settled(t, px, 2*len(cases), func(c *proxy.ClusterStatus) bool {
		return c.Namespace == created || c.Ready() == "True/Serving"
	})
	said := readLog(t, px)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { c[0].fares(t, clusters[c[0].key()], said[c[0].key()]) })
	}
	for file, text := range next {
		if err := px.WriteManifest(file, text); err != nil {
			t.Fatal(err)
		}
	}
	clusters = settled(t, px, 2*len(cases), func(c *proxy.ClusterStatus) bool {
		return c.Namespace == created || c.Condition("UpdateRefused") != nil || c.Status.ObservedGeneration == 2
	})
	said = readLog(t, px)
	refused := 0
	client := px.Client("h1")
	defer client.CloseIdleConnections()
	for name, c := range cases {
		t.Run(name+", in place of another", func(t *testing.T) {
			if c[1].replaces(t, clusters[c[1].key()], said[c[1].key()]); c[1].real.Spec == nil {
				c[1].goesOn(t, client, px)
			}
		})
		if c[1].real.Spec == nil {
			refused++
		}
	}
	t.Logf("%d cases, %d refused", len(cases), refused)
	if refused < 90 || len(cases) < 172 {
		t.Errorf("%d of %d cases are refused", refused, len(cases))
	}
}

// replacing stores an object at the apiserver, and returns what it says to
// another spec in the place of that one.
func (j *judges) replacing(t *testing.T, before v1.ProxyKubeApiSpec) func(spec any) (verdict, error) {
	t.Helper()
	k := j.api.Kubectl(t, "")
	k.Stdin = []byte(proxy.Manifests(map[string]any{
		"apiVersion": "weebo.si.rs/v1", "kind": v1.Kind,
		"metadata": map[string]any{"namespace": "default", "name": "replaced"}, "spec": before,
	}))
	version := k.MustRun(t, "create", "-f", "-", "-o", "jsonpath={.metadata.resourceVersion}").Stdout
	return func(spec any) (verdict, error) {
		object := withSpec(spec)
		object["metadata"] = map[string]any{"namespace": "default", "name": "replaced", "resourceVersion": version}
		return j.send(t.Context(), http.MethodPut, "/replaced", object)
	}
}

// named is the object of a case under its own name.
func named(f filed, spec any) map[string]any {
	object := withSpec(spec)
	object["metadata"] = map[string]any{"namespace": f.namespace, "name": f.name}
	return object
}

// text is a case as a file holds it, with its control characters escaped.
func text(t *testing.T, f filed, spec any) string {
	t.Helper()
	text, err := yaml.Marshal(named(f, spec))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// settled waits until the product shows that many objects as wanted.
func settled(t *testing.T, px *proxy.Proxy, n int, want func(*proxy.ClusterStatus) bool) map[string]*proxy.ClusterStatus {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(250 * time.Millisecond) {
		// The admin API answers a moment before there is something to show.
		list, err := px.Clusters(t.Context())
		found := map[string]*proxy.ClusterStatus{}
		var missing []string
		for i := range list {
			key := list[i].Namespace + "/" + list[i].Name
			if found[key] = &list[i]; !want(&list[i]) {
				missing = append(missing, key)
			}
		}
		if err == nil && len(found) == n && len(missing) == 0 {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d objects, not as wanted: %v, %v", len(found), n, missing, err)
		}
	}
}

// told is what the log says of an object: how often a version was accepted, and
// why the last one was refused.
type told struct {
	accepted int
	refused  string
}

// readLog is what the log says, by object.
func readLog(t *testing.T, px *proxy.Proxy) map[string]told {
	t.Helper()
	lines, err := px.Log()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]told{}
	for _, line := range lines {
		object := strings.TrimPrefix(line.Text("object"), v1.Kind+" ")
		said := all[object]
		switch line.Text("msg") {
		case "object refused":
			said.refused = line.Text("reason")
		case "object accepted":
			said.accepted++
		}
		all[object] = said
	}
	return all
}

// fares compares the verdict on an object that was there at the start.
func (f filed) fares(t *testing.T, status *proxy.ClusterStatus, said told) {
	if f.real.Spec != nil {
		if (said != told{accepted: 1}) || status.Status.ObservedGeneration != 1 {
			t.Errorf("%+v, generation %d", said, status.Status.ObservedGeneration)
		}
		return
	}
	if said.accepted != 0 {
		t.Errorf("it was accepted, the apiserver says %s", f.real.Message)
	}
	f.sameWords(t, said.refused)
	switch ready := status.Ready(); ready {
	case "False/InvalidSpec":
		if message := status.Condition("Ready").Message; !strings.Contains(message, said.refused) {
			t.Errorf("Ready says %q, the log %q", message, said.refused)
		}
	case "False/Disabled", "Unknown/UpstreamModeUnknown": // come first in section 7
	default:
		t.Errorf("Ready is %s", ready)
	}
}

// replaces compares the verdict on an object that took the place of one that
// serves: refused, it changes nothing.
func (f filed) replaces(t *testing.T, status *proxy.ClusterStatus, said told) {
	notice := status.Condition("UpdateRefused")
	if f.real.Spec != nil {
		if (said != told{accepted: 2}) || notice != nil {
			t.Errorf("%+v, %+v", said, notice)
		}
		return
	}
	if said.accepted != 1 || notice == nil {
		t.Fatalf("%+v, %+v", said, status.Status.Conditions)
	}
	f.sameWords(t, notice.Message)
	if notice.Status != metav1.ConditionTrue || notice.Reason != notice.Type || said.refused != notice.Message {
		t.Errorf("%+v, the log says %q", notice, said.refused)
	}
	if status.Status.Error == nil || *status.Status.Error != notice.Message {
		t.Errorf("status.error is not that notice: %+v", status.Status)
	}
	if status.Ready() != "True/Serving" || status.Status.ObservedGeneration != 1 {
		t.Errorf("Ready %s in generation %d", status.Ready(), status.Status.ObservedGeneration)
	}
}

// goesOn sends a request by the version that stays.
func (f filed) goesOn(t *testing.T, client *http.Client, px *proxy.Proxy) {
	resp, err := client.Get(px.ClusterURL(f.namespace, f.name) + "/api")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the version before answers %d %s, %v", resp.StatusCode, body, err)
	}
}

// sameWords compares a refusal of the product with that of the apiserver. The
// product leaves out the values, and the order is that of a map.
func (f filed) sameWords(t *testing.T, text string) {
	t.Helper()
	rest, ok := strings.CutPrefix(text, f.file()+": ")
	if !ok {
		t.Errorf("the refusal %q does not name the file", text)
	}
	left := map[string]bool{}
	for _, want := range f.real.reasons() {
		i := slices.IndexFunc(want, func(reason string) bool { return strings.Contains(rest, reason) })
		if i < 0 {
			t.Errorf("%q says none of %q", rest, want)
			continue
		}
		left[want[i]] = true
	}
	// Nothing besides.
	for _, reason := range slices.SortedFunc(maps.Keys(left), func(a, b string) int { return len(b) - len(a) }) {
		rest = strings.Replace(rest, reason, "", 1)
	}
	if rest = strings.Trim(rest, "; "); rest != "" {
		t.Errorf("it says also %q", rest)
	}
}

// reasons are what the apiserver found, each in the spellings it may have with
// its value left out.
func (v verdict) reasons() [][]string {
	if _, strict, ok := strings.Cut(v.Message, "strict decoding error: "); ok {
		var all [][]string
		for reason := range strings.SplitSeq(strict, ", ") {
			all = append(all, []string{reason})
		}
		return all
	}
	if len(v.Causes) == 0 {
		return [][]string{{"the object cannot be decoded: a field has the wrong type"}}
	}
	var all [][]string
	for _, cause := range v.Causes {
		parts := strings.SplitN(cause, "|", 3)
		field, message := parts[1], parts[2]
		if strings.Contains(message, "some validation rules were not checked") {
			all = append(all, []string{"other rules were not checked"})
			continue
		}
		if field += ": "; field == "<nil>: " {
			field = ""
		}
		kind, detail, found := strings.Cut(message, ": ")
		var spellings []string
		for found {
			spellings = append(spellings, field+kind+": "+detail)
			_, detail, found = strings.Cut(detail, ": ")
		}
		all = append(all, append(spellings, field+kind))
	}
	return all
}
