package caddymodule

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/version"
)

func TestPrintVersion(t *testing.T) {
	var text, encoded bytes.Buffer
	if err := printVersion(&text, "text"); err != nil {
		t.Fatal(err)
	}
	if err := printVersion(&encoded, "json"); err != nil {
		t.Fatal(err)
	}
	var v versions
	if err := json.Unmarshal(encoded.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version != version.String() || v.Caddy == "" || !strings.HasPrefix(v.Go, "go") {
		t.Errorf("%+v", v)
	}
	if want := v.Version + " (Caddy " + v.Caddy + ", " + v.Go + ")\n"; text.String() != want {
		t.Errorf("%q, want %q", text.String(), want)
	}
	if err := printVersion(&text, "yaml"); err == nil || !strings.Contains(err.Error(), `output: unknown value "yaml"`) {
		t.Errorf("%v", err)
	}
}

func TestBuildInfoMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(process.Metrics.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "proxyauth_build_info" {
			continue
		}
		m := family.GetMetric()[0]
		if label := m.GetLabel()[0]; label.GetName() != "version" || label.GetValue() != version.String() || m.GetGauge().GetValue() != 1 {
			t.Errorf("%v", m)
		}
		return
	}
	t.Error("there is no such metric")
}
