package admission

import (
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// API-1, API-3: one apiserver for all, since it takes longer to start than to
// ask.
func TestAPI1ApiserverAndValidatorAgree(t *testing.T) {
	newJudges(t, kube.Options{}).everything(t)
}

func (j *judges) everything(t *testing.T) {
	j.installCRD(t)
	t.Run("cases", j.cases)
	t.Run("rules", j.rules)
	t.Run("every place", func(t *testing.T) { j.everyPlace(t, mutator{}) })
	if j.wording == nil {
		// Its texts are compared word by word with what this apiserver says.
		t.Run("CONF-6 directory", j.directory)
	}
	t.Run("REC-4 columns", j.columns)
	t.Run("objects older than the CRD", j.older)
}

func (j *judges) cases(t *testing.T) {
	cases := readCases[verdictCase](t, "cases.yaml")
	if len(cases) != 67 {
		t.Errorf("%d cases, want 67", len(cases))
	}
	refused := 0
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			v, diff := j.compare(t.Context(), c.Object)
			if diff != "" {
				t.Errorf("apiserver (-), validator (+):\n%s", diff)
			}
			if accepted := v.Spec != nil; accepted != c.Accepted {
				t.Errorf("accepted is %v, want %v: %+v", accepted, c.Accepted, v)
			}
			if v.Spec == nil {
				refused++
			}
		})
	}
	t.Logf("%d cases: %d accepted, %d refused", len(cases), len(cases)-refused, refused)
}

func (j *judges) rules(t *testing.T) {
	refused, all := 0, append(readCases[ruleCase](t, "rules.yaml"), readCases[ruleCase](t, "full.yaml")...)
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			v, diff := j.compare(t.Context(), c.object())
			if diff != "" {
				t.Errorf("apiserver (-), validator (+):\n%s", diff)
			}
			if accepted := v.Spec != nil; accepted != (c.Refused == "") {
				t.Errorf("accepted is %v: %+v", accepted, v)
			}
			if v.Spec == nil {
				refused++
			}
		})
	}
	t.Logf("%d objects: %d accepted, %d refused", len(all), len(all)-refused, refused)
}

// everyPlace changes each field of the full objects in turn: at and past its
// bounds, to other types, to null, away, with an unknown neighbour.
func (j *judges) everyPlace(t *testing.T, how mutator) {
	type change struct {
		name   string
		object map[string]any
	}
	changes := make(chan change)
	go func() {
		defer close(changes)
		seen := map[string]bool{}
		for _, full := range readCases[ruleCase](t, "full.yaml") {
			for _, m := range how.mutations(specSchema(t), full.Spec) {
				if !seen[m.name] {
					seen[m.name] = true
					changes <- change{m.name, withSpec(m.spec)}
				}
			}
		}
	}()
	var mu sync.Mutex
	counts := map[string]int{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for c := range changes {
				v, diff := j.compare(t.Context(), c.object)
				mu.Lock()
				switch {
				case diff != "":
					counts["different"]++
					if counts["different"] <= 10 {
						t.Errorf("%s: apiserver (-), validator (+):\n%.3000s", c.name, diff)
					}
				case v.Spec != nil:
					counts["accepted"]++
				case strings.Contains(v.Message, "cost budget"):
					t.Errorf("%s: %s", c.name, v.Message)
				case v.Code == 400:
					counts["unknown field"]++
				default:
					counts["invalid"]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	total := 0
	for n := range maps.Values(counts) {
		total += n
	}
	t.Logf("%d objects changed in one place: %v", total, counts)
	if counts["accepted"] < 100 || counts["invalid"] < 500 || counts["unknown field"] < 20 {
		t.Errorf("too few objects: %v", counts)
	}
}

// columns is what kubectl shows, by the short name.
func (j *judges) columns(t *testing.T) {
	k := j.api.Kubectl(t, "")
	k.Stdin = []byte(`apiVersion: weebo.si.rs/v1
kind: ProxyKubeApi
metadata: {name: shown, namespace: default}
spec: {service: {Agent: {}}}
`)
	k.MustRun(t, "create", "--validate=strict", "-f", "-")
	k.Stdin = nil
	k.MustRun(t, "patch", "pka", "shown", "--subresource=status", "--type=merge", "-p",
		`{"status":{"exposed":true,"path":"/clusters/default/shown","conditions":[{"type":"Ready","status":"True","reason":"Serving","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}],"upstreamAuth":{"mode":"Passthrough","trust":"`+string(v1.TrustTrusted)+`"}}}`)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"get", "pka", "shown"}, []string{"NAME", "READY", "PATH", "shown", "True", "/clusters/default/shown"}},
		{[]string{"get", "pka", "shown", "-o", "wide"}, []string{"UPSTREAM", "TRUST", "Passthrough", "Trusted"}},
	} {
		out := k.MustRun(t, tt.args...).Stdout
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl %q has no %q:\n%s", tt.args, want, out)
			}
		}
	}
}
