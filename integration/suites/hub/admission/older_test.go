package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
	hubsource "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/hub"
)

// olderCase is an object that came in before the rules.
type olderCase struct {
	name, object string
	spec         any
}

// older stores what admission refuses under a CRD without rules, puts the rules
// back, and wants the source of a hub and its compiler to refuse it in the words
// of admission (API-3).
func (j *judges) older(t *testing.T) {
	j.applyCRD(t, openCRD(t))
	var cases []olderCase
	add := func(name string, spec any) {
		cases = append(cases, olderCase{name, fmt.Sprintf("older-%d", len(cases)), spec})
	}
	for _, c := range readCases[verdictCase](t, "cases.yaml") {
		add(c.Name, c.Object["spec"])
	}
	for _, c := range readCases[ruleCase](t, "rules.yaml") {
		add(c.Name, c.Spec)
	}
	for _, c := range cases {
		j.store(t, c)
	}
	j.applyCRD(t, v1.CRD)

	source, compiler := j.follow(t)
	refused := 0
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			key := k8swatch.Key{Namespace: "default", Name: c.object}
			if source.Object(key) == nil {
				t.Fatal("it is not shown")
			}
			cluster, _ := compiler.Compile(source, key, compile.Carried{})
			ready := cluster.Ready
			_, err := j.own.Admit(withSpec(c.spec))
			var refusal *admission.Refusal
			if !errors.As(err, &refusal) || len(refusal.Invalid) == 0 {
				return // accepted, or but for fields that are dropped
			}
			refused++
			j.refusedAlike(t, c.spec, ready, refusal)
		})
	}
	t.Logf("%d of %d objects are refused", refused, len(cases))
	if refused < 80 {
		t.Errorf("only %d objects are refused", refused)
	}
}

// refusedAlike compares a Ready condition with what admission says.
func (j *judges) refusedAlike(t *testing.T, spec any, ready k8swatch.Condition, refusal *admission.Refusal) {
	t.Helper()
	for _, err := range refusal.Invalid {
		if err.Field == "spec.upstream_auth.mode" {
			// A mode of a later version, to this replica.
			if ready.Status == k8swatch.StatusTrue {
				t.Errorf("it is served: %+v", ready)
			}
			return
		}
	}
	if fields, ok := spec.(map[string]any); ok && fields["enabled"] == false {
		if ready.Reason != k8swatch.ReasonDisabled {
			t.Errorf("Ready %+v", ready)
		}
		return
	}
	if ready.Status != k8swatch.StatusFalse || ready.Reason != k8swatch.ReasonInvalidSpec {
		t.Fatalf("Ready %+v, admission says %v", ready, refusal.Invalid)
	}
	if strings.Contains(ready.Message, "<nil>") {
		t.Errorf("the message is not for people: %s", ready.Message)
	}
	for _, err := range refusal.Invalid {
		want := err.Detail
		if err.Field != "<nil>" {
			want = err.Field + ": " + err.Detail
		}
		if !strings.Contains(ready.Message, want) {
			t.Errorf("Ready says %q, without %q", ready.Message, want)
		}
	}
}

// openCRD is the CRD without any rule on the spec.
func openCRD(t *testing.T) string {
	t.Helper()
	var crd map[string]any
	if err := yaml.Unmarshal([]byte(v1.CRD), &crd); err != nil {
		t.Fatal(err)
	}
	version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	schema["properties"].(map[string]any)["spec"] = map[string]any{"x-kubernetes-preserve-unknown-fields": true, "nullable": true}
	text, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// applyCRD replaces the CRD and waits until its rules, or their absence, are in
// force.
func (j *judges) applyCRD(t *testing.T, crd string) {
	t.Helper()
	k := j.api.Kubectl(t, "")
	k.Stdin = []byte(crd)
	k.MustRun(t, "replace", "-f", "-")
	open := crd != v1.CRD
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		v, err := j.real(t.Context(), withSpec(map[string]any{"service": "of another shape"}))
		if err == nil && (v.Spec == nil) != open && v.Code != http.StatusNotFound {
			return
		}
		// Without rules it does not fit our types.
		if err != nil && open && strings.Contains(err.Error(), "cannot unmarshal") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the CRD is not in force: %+v, %v", v, err)
		}
	}
}

// store creates an object whatever is in it.
func (j *judges) store(t *testing.T, c olderCase) {
	t.Helper()
	object := withSpec(c.spec)
	object["metadata"] = map[string]any{"name": c.object, "namespace": "default"}
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	url := j.api.URL + "/apis/weebo.si.rs/v1/namespaces/default/proxykubeapis?fieldValidation=Ignore"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := j.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		var status metav1.Status
		_ = json.NewDecoder(resp.Body).Decode(&status)
		t.Fatalf("%s: %d %s", c.name, resp.StatusCode, status.Message)
	}
}

// follow reads the objects as the product does.
func (j *judges) follow(t *testing.T) (*hubsource.Source, *compile.Compiler) {
	t.Helper()
	source, err := hubsource.New(hubsource.Options{Config: j.api.AdminConfig(), Namespace: "proxyauth"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	listed, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		ended <- source.Run(ctx, func(...k8swatch.Change) {
			if first {
				close(listed)
				first = false
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-listed:
	case <-time.After(time.Minute):
		t.Fatal("the objects were not read")
	}
	return source, compile.New(compile.Options{
		Namespace:    "proxyauth",
		AllowedModes: []v1.UpstreamMode{v1.ModePassthrough, v1.ModeFrontProxy},
		Revalidate:   j.own.Revalidate,
	})
}
