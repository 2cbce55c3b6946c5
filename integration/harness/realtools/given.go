package realtools

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// assetsVariable names a folder with etcd, kube-apiserver and kubectl, as
// controller-runtime's setup-envtest installs them. They are taken in place of
// a build when their minor version is the pinned one.
const assetsVariable = "KUBEBUILDER_ASSETS"

// versionArgs make the programs of such a folder print their version.
var versionArgs = map[string][]string{
	"kube-apiserver": {"--version"},
	"etcd":           {"--version"},
	"kubectl":        {"version", "--client"},
}

// firstVersion finds 1.37.2 in "Kubernetes v1.37.2", "Client Version: v1.37.2"
// and "etcd Version: 3.7.3".
var firstVersion = regexp.MustCompile(`\bv?(\d+\.\d+)\.\d+`)

// given is the program that KUBEBUILDER_ASSETS offers in place of a build.
func (p *plan) given(ctx context.Context, progress io.Writer) (string, bool) {
	folder, args := os.Getenv(assetsVariable), versionArgs[p.Name]
	if folder == "" || args == nil {
		return "", false
	}
	file, err := filepath.Abs(filepath.Join(folder, p.Name))
	if err != nil {
		return "", false
	}
	out, err := exec.CommandContext(ctx, file, args...).Output()
	if err != nil {
		fmt.Fprintf(progress, "%s: not taking %s: %v\n", assetsVariable, p.Name, err)
		return "", false
	}
	found := firstVersion.FindSubmatch(out)
	if found == nil || string(found[1]) != minor(p.version) {
		fmt.Fprintf(progress, "%s: not taking %s: it says %q, and the tests need %s\n", assetsVariable, p.Name, firstLine(out), minor(p.version))
		return "", false
	}
	return file, true
}

// minor is 1.37 of v1.37.2.
func minor(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}
