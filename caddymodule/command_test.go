package caddymodule

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/directory"
)

// SIG-4: MESSAGE says why a cluster is not ready, or what its notices say.
func TestStatusTable(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	serves := condition("Ready", "True", "Serving", "serves")
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"serving":       {[]metav1.Condition{serves, condition("Reachable", "True", "Answered", "answers")}, "-"},
		"not reachable": {[]metav1.Condition{serves, condition("Reachable", "False", "ConnectFailed", "refused")}, "-"},
		"no conditions": {nil, "-"},
		"not ready wins over notices": {[]metav1.Condition{
			condition("Ready", "False", "InvalidSpec", "spec.x is wrong"), condition("UpdateRefused", "True", "UpdateRefused", "a.yaml: y"),
		}, "spec.x is wrong"},
		"unknown": {[]metav1.Condition{condition("Ready", "Unknown", "UpstreamModeUnknown", "a later mode")}, "a later mode"},
		"a notice": {[]metav1.Condition{serves, condition("UpdateRefused", "True", "UpdateRefused", "a.yaml: spec.x")},
			"UpdateRefused: a.yaml: spec.x"},
		"prepared": {[]metav1.Condition{serves, condition("FrontProxyNotReady", "False", "Prepared", "nothing stops it")}, "-"},
		"two notices": {[]metav1.Condition{serves,
			condition("ClientCertExpiring", "True", "ClientCertExpiring", "until noon"),
			condition("UpstreamTrustUnknown", "True", "UpstreamTrustUnknown", "connection refused")},
			"ClientCertExpiring: until noon; UpstreamTrustUnknown: connection refused"},
		"a long notice": {[]metav1.Condition{serves, condition("UnsupportedField", "True", "UnsupportedField", strings.Repeat("é", 257))},
			"UnsupportedField: " + strings.Repeat("é", 253) + "..."},
		"a hostile one": {[]metav1.Condition{serves, condition("UpdateRefused", "True", "UpdateRefused", "\x1b[2J\n")}, "UpdateRefused: ?[2J?"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printTable(&out, []serving.ClusterStatus{{Namespace: "team-a", Name: "prod", Status: v1.ProxyKubeApiStatus{Conditions: tc.conditions}}}); err != nil {
				t.Fatal(err)
			}
			header, row, _ := strings.Cut(out.String(), "\n")
			at := strings.Index(header, "MESSAGE")
			if got := strings.TrimSuffix(string([]rune(row)[at:]), "\n"); got != tc.want {
				t.Errorf("MESSAGE %q, want %q", got, tc.want)
			}
		})
	}
}

// The group of a cluster is in the table, and refused files follow it, printable.
func TestTableOfGroupsAndFiles(t *testing.T) {
	var out bytes.Buffer
	if err := printTable(&out, []serving.ClusterStatus{{Namespace: "team-a", Name: "prod", ProxyGroup: "ops\x1b"}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "GROUP") || !strings.Contains(out.String(), "ops?") {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	if err := printRefused(&out, []directory.RefusedFile{{File: "a.yaml", Reason: strings.Repeat("x", 1000) + "\x1b"}}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "REFUSED FILE") || !strings.Contains(got, "a.yaml") || len(got) > 400 || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
	out.Reset()
	if err := printRefused(&out, nil); err != nil || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// When nothing listens there, the error says where else the endpoint may be.
func TestStatusWithoutAdmin(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{closed, "unix/" + filepath.Join(t.TempDir(), "admin.sock")} {
		flags := statusCommand().Flags()
		if err := flags.Set("address", address); err != nil {
			t.Fatal(err)
		}
		err := runStatus(caddycmd.Flags{FlagSet: flags}, new(bytes.Buffer))
		if err == nil {
			t.Fatalf("%s answered", address)
		}
		for _, want := range []string{address, "--address", "`admin`", "unix socket"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name %s", err, want)
			}
		}
	}
}
