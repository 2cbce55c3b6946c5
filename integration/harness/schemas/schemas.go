package schemas

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// definitions are the files by module.
var definitions = map[string][]string{
	"github.com/cert-manager/cert-manager": {
		"deploy/crds/cert-manager.io_certificates.yaml",
		"deploy/crds/cert-manager.io_issuers.yaml",
	},
	"github.com/external-secrets/external-secrets": {
		"config/crds/bases/external-secrets.io_externalsecrets.yaml",
		"config/crds/bases/external-secrets.io_secretstores.yaml",
	},
	"github.com/hashicorp/vault-secrets-operator": {
		"config/crd/bases/secrets.hashicorp.com_vaultpkisecrets.yaml",
	},
	"github.com/prometheus-operator/prometheus-operator": {
		"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
	},
	"sigs.k8s.io/gateway-api": {
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
		"config/crd/standard/gateway.networking.k8s.io_tlsroutes.yaml",
	},
}

// Files are the definitions' files in the module cache, which is filled first.
func Files(ctx context.Context) ([]string, error) {
	root, err := realtools.RepoRoot()
	if err != nil {
		return nil, err
	}
	var files []string
	for module, names := range definitions {
		dir, err := moduleDir(ctx, filepath.Join(root, "integration", "tools", "schemas"), module)
		if err != nil {
			return nil, fmt.Errorf("finding the definitions of %s: %w", module, err)
		}
		for _, name := range names {
			file := filepath.Join(dir, filepath.FromSlash(name))
			if _, err := os.Stat(file); err != nil {
				return nil, fmt.Errorf("finding the definitions of %s: %w", module, err)
			}
			files = append(files, file)
		}
	}
	return files, nil
}

// moduleDir is where go keeps the version of a module that the go.mod in pins
// requires.
func moduleDir(ctx context.Context, pins, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = pins
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+pins)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, stdout.String(), stderr.String())
	}
	var answer struct{ Dir string }
	if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
		return "", err
	}
	return answer.Dir, nil
}

// Install makes the definitions known to an apiserver and waits until their
// objects are served.
func Install(tb testing.TB, a *kube.APIServer) {
	tb.Helper()
	files, err := Files(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	kubectl := a.Kubectl(tb, "")
	// Server side: the annotation of a client-side apply is too small for them.
	apply := []string{"apply", "--server-side"}
	for _, file := range files {
		apply = append(apply, "-f", file)
	}
	kubectl.MustRun(tb, apply...)
	kubectl.MustEstablish(tb, "--all")
}
