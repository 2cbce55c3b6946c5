package charts

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// productMetrics are the metrics that the sources of the product name.
func productMetrics(t *testing.T) map[string]bool {
	t.Helper()
	name := regexp.MustCompile(`"(proxyauth_[a-z_]+_(?:total|seconds|trust|healthy|ready|streams|info))"`)
	metrics := map[string]bool{}
	err := filepath.WalkDir(repositoryPath(t, "caddymodule"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range name.FindAllStringSubmatch(string(text), -1) {
			metrics[found[1]] = true
		}
		return err
	})
	if err != nil || len(metrics) < 8 {
		t.Fatalf("metrics %v, %v", metrics, err)
	}
	return metrics
}

// checkExpression demands that the product has the metrics of an expression,
// and that its brackets match.
func checkExpression(t *testing.T, metrics map[string]bool, expression string) {
	t.Helper()
	found := regexp.MustCompile(`proxyauth_[a-z_]+`).FindAllString(expression, -1)
	if len(found) == 0 {
		t.Errorf("no metric in %q", expression)
	}
	for _, name := range found {
		plain := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		if !metrics[name] && !metrics[plain] {
			t.Errorf("the product has no metric %s: %q", name, expression)
		}
	}
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(expression, pair[:1]) != strings.Count(expression, pair[1:]) {
			t.Errorf("brackets %s in %q", pair, expression)
		}
	}
}

// The alerts ask for metrics that there are.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text := mustTemplate(t, release, namespace, chart(t), "--set", "prometheusRule.enabled=true")
	rules, _ := found(documents(t, text), "PrometheusRule /spec/groups/0/rules").([]any)
	if len(rules) < 7 {
		t.Fatalf("%d rules", len(rules))
	}
	metrics := productMetrics(t)
	for _, rule := range rules {
		encoded, err := json.Marshal(rule)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
		if err := yaml.UnmarshalStrict(encoded, &r); err != nil {
			t.Fatal(err)
		}
		checkExpression(t, metrics, r.Expr)
		if r.Alert == "" || r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("rule %+v", r)
		}
	}
}

// The dashboard is the one of the folder, and asks for metrics that there are.
func TestDashboard(t *testing.T) {
	t.Parallel()
	objects := render(t, chart(t), "--set", "grafanaDashboard.enabled=true")
	data := byName[*corev1.ConfigMap](objects, "proxy-proxyauthk8s-dashboard").Data["proxyauth-proxy-proxyauthk8s.json"]
	var dashboard struct {
		UID    string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(data), &dashboard); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if dashboard.UID == "" || len(dashboard.Panels) < 10 {
		t.Errorf("dashboard %+v", dashboard)
	}
	metrics := productMetrics(t)
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("panel %s asks for nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			checkExpression(t, metrics, target.Expr)
		}
	}
}
