package realtools

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGiven offers programs that print a version and nothing else.
func TestGiven(t *testing.T) {
	t.Setenv("PROXYAUTH_CACHE", t.TempDir())
	plans := map[string]*plan{}
	for _, tool := range []Tool{KubeAPIServer, Kubectl, Etcd, Helm, KubeAPIServer128} {
		p, err := newPlan(tool)
		if err != nil {
			t.Fatal(err)
		}
		plans[tool.Name] = p
	}
	kubernetes, etcd := minor(plans["kubectl"].version), minor(plans["etcd"].version)
	tests := []struct {
		name, tool, says string
		taken            bool
		told             string
	}{
		{"kube-apiserver", "kube-apiserver", "Kubernetes v" + kubernetes + ".99", true, ""},
		{"kubectl", "kubectl", "Client Version: v" + kubernetes + ".0\nKustomize Version: v5.8.1", true, ""},
		{"etcd", "etcd", "etcd Version: " + etcd + ".0\nGit SHA: Not provided", true, ""},
		{"another minor", "kube-apiserver", "Kubernetes v1.3.0", false, "the tests need " + kubernetes},
		{"no version", "etcd", "usage: etcd", false, "usage: etcd"},
		{"missing", "kubectl", "", false, "not taking kubectl"},
		{"not of the three", "helm", "v3.0.0", false, ""},
		{"an older apiserver", "kube-apiserver-1.28", "Kubernetes v1.28.0", false, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(assetsVariable, dir)
			file := filepath.Join(dir, tc.tool)
			if tc.says != "" {
				if err := os.WriteFile(file, []byte(fmt.Sprintf("#!/bin/sh\ncat <<'end'\n%s\nend\n", tc.says)), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			var told bytes.Buffer
			got, taken := plans[tc.tool].given(t.Context(), &told)
			if taken != tc.taken || taken && got != file {
				t.Errorf("%q, %v", got, taken)
			}
			if !strings.Contains(told.String(), tc.told) || (tc.told == "") != (told.Len() == 0) {
				t.Errorf("told %q, want %q", told.String(), tc.told)
			}
		})
	}
}
