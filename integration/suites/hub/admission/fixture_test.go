package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// verdictCase is an entry of cases.yaml, ruleCase one of rules.yaml and
// full.yaml.
type verdictCase struct {
	Name     string         `json:"name"`
	Accepted bool           `json:"accepted"`
	Object   map[string]any `json:"object"`
}

type ruleCase struct {
	Name    string `json:"name"`
	Spec    any    `json:"spec"`
	Refused string `json:"refused"`
}

func (c ruleCase) object() map[string]any { return withSpec(c.Spec) }

func withSpec(spec any) map[string]any {
	return map[string]any{
		"apiVersion": "weebo.si.rs/v1", "kind": "ProxyKubeApi",
		"metadata": map[string]any{"name": "prod", "namespace": "default"}, "spec": spec,
	}
}

func readCases[T any](t *testing.T, file string) []T {
	t.Helper()
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "k8swatch", "admission", "testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	b, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := utiljson.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// judges are the two that have to agree.
type judges struct {
	api    *kube.APIServer
	client *http.Client
	own    *admission.Validator
	// wording is what two versions of the apiserver say alike of a text, which
	// may be nothing; nil is all of it.
	wording func(string) string
}

func newJudges(t *testing.T, o kube.Options) *judges {
	t.Helper()
	own, err := admission.Default()
	if err != nil {
		t.Fatal(err)
	}
	api := kube.Start(t, o)
	j := &judges{api: api, own: own, client: api.HTTPClient(pki.Must(api.PKI.ClientCA.Client("admin", "system:masters")))}
	t.Cleanup(j.client.CloseIdleConnections)
	return j
}

// verdict is what became of an object: its spec with defaults, or a refusal.
type verdict struct {
	Spec *v1.ProxyKubeApiSpec
	// The parts of a Status that do not depend on the order in which an
	// apiserver walks through an object.
	Code    int32
	Reason  metav1.StatusReason
	Message string
	Causes  []string
}

func refusedBy(s metav1.Status) verdict {
	v := verdict{Code: s.Code, Reason: s.Reason, Message: s.Message}
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return v
	}
	for _, c := range s.Details.Causes {
		v.Causes = append(v.Causes, fmt.Sprintf("%s|%s|%s", c.Type, c.Field, c.Message))
	}
	slices.Sort(v.Causes)
	if len(v.Causes) > 1 {
		// The message is the causes in the order of a Go map.
		v.Message, _, _ = strings.Cut(v.Message, " is invalid: ")
	}
	return v
}

// real asks the apiserver, which keeps nothing.
func (j *judges) real(ctx context.Context, object map[string]any) (verdict, error) {
	return j.send(ctx, http.MethodPost, "", object)
}

// send creates an object, or replaces one, without effect.
func (j *judges) send(ctx context.Context, method, name string, object map[string]any) (verdict, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return verdict{}, err
	}
	url := j.api.URL + "/apis/weebo.si.rs/v1/namespaces/default/proxykubeapis" + name + "?fieldValidation=Strict&dryRun=All"
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(b))
	if err != nil {
		return verdict{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := j.client.Do(req)
	if err != nil {
		return verdict{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return verdict{}, err
	}
	if resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusOK {
		var typed v1.ProxyKubeApi
		err := json.Unmarshal(answer, &typed)
		return verdict{Spec: &typed.Spec}, err
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil {
		return verdict{}, fmt.Errorf("%d %s: %w", resp.StatusCode, answer, err)
	}
	return refusedBy(status), nil
}

func (j *judges) inProcess(object map[string]any) (verdict, error) {
	typed, err := j.own.Admit(object)
	var refused *admission.Refusal
	switch {
	case err == nil:
		return verdict{Spec: &typed.Spec}, nil
	case errors.As(err, &refused):
		return refusedBy(refused.Status().ErrStatus), nil
	}
	return verdict{}, err
}

// compare returns the verdict of both, or says how they differ.
func (j *judges) compare(ctx context.Context, object map[string]any) (verdict, string) {
	real, err := j.real(ctx, object)
	if err != nil {
		return real, fmt.Sprintf("asking the apiserver: %v", err)
	}
	own, err := j.inProcess(object)
	if err != nil {
		return real, fmt.Sprintf("asking the validator: %v", err)
	}
	if j.wording != nil {
		real, own = real.reworded(j.wording), own.reworded(j.wording)
	}
	return real, cmp.Diff(real, own)
}

// reworded is the verdict with its texts changed, and without those that are
// empty then.
func (v verdict) reworded(wording func(string) string) verdict {
	v.Message = wording(v.Message)
	var causes []string
	for _, cause := range v.Causes {
		if cause = wording(cause); cause != "" {
			causes = append(causes, cause)
		}
	}
	slices.Sort(causes)
	v.Causes = causes
	return v
}

// installCRD creates the CRD as an operator does and waits until it serves.
func (j *judges) installCRD(t *testing.T) {
	t.Helper()
	k := j.api.Kubectl(t, "")
	k.Stdin = []byte(v1.CRD)
	began := time.Now()
	k.MustRun(t, "create", "--validate=strict", "-f", "-")
	k.MustEstablish(t, "proxykubeapis.weebo.si.rs")
	t.Logf("the CRD was accepted and established in %v", time.Since(began).Round(time.Millisecond))
	conditions := k.MustRun(t, "get", "crd", "proxykubeapis.weebo.si.rs", "-o", `jsonpath={range .status.conditions[*]}{.type}={.status} {end}`).Stdout
	if strings.Contains(conditions, "NonStructuralSchema=True") || !strings.Contains(conditions, "NamesAccepted=True") {
		t.Errorf("conditions of the CRD: %s", conditions)
	}
	// An established CRD is served a moment later.
	object := withSpec(map[string]any{"service": map[string]any{"Agent": map[string]any{}}})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		v, err := j.real(t.Context(), object)
		if err == nil && v.Spec != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the CRD is not served: %+v, %v", v, err)
		}
	}
}
