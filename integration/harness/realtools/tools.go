package realtools

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
)

// Tool is one program that can be built.
type Tool struct {
	// Name is the file name of the program.
	Name string
	// Package is the import path of its main package.
	Package string
	// Module is the module whose version the program bears.
	Module string
	// Dir is the folder below integration/tools that pins it.
	Dir string
	// StampVersion has the linker write the version into the program, as the
	// Kubernetes releases do: clients compare it, and "v0.0.0-master" is odd.
	StampVersion bool
}

// The programs the tests and the Makefile use.
var (
	KubeAPIServer         = Tool{Name: "kube-apiserver", Package: "k8s.io/kubernetes/cmd/kube-apiserver", Module: "k8s.io/kubernetes", Dir: "kubernetes", StampVersion: true}
	Kubectl               = Tool{Name: "kubectl", Package: "k8s.io/kubernetes/cmd/kubectl", Module: "k8s.io/kubernetes", Dir: "kubernetes", StampVersion: true}
	KubeControllerManager = Tool{Name: "kube-controller-manager", Package: "k8s.io/kubernetes/cmd/kube-controller-manager", Module: "k8s.io/kubernetes", Dir: "kubernetes", StampVersion: true}
	KubeScheduler         = Tool{Name: "kube-scheduler", Package: "k8s.io/kubernetes/cmd/kube-scheduler", Module: "k8s.io/kubernetes", Dir: "kubernetes", StampVersion: true}
	KubeProxy             = Tool{Name: "kube-proxy", Package: "k8s.io/kubernetes/cmd/kube-proxy", Module: "k8s.io/kubernetes", Dir: "kubernetes", StampVersion: true}
	Kubelet               = Tool{Name: "kubelet", Package: "k8s.io/kubernetes/cmd/kubelet", Module: "k8s.io/kubernetes", Dir: "kubernetes", StampVersion: true}
	Helm                  = Tool{Name: "helm", Package: "helm.sh/helm/v3/cmd/helm", Module: "helm.sh/helm/v3", Dir: "helm"}
	Etcd                  = Tool{Name: "etcd", Package: "go.etcd.io/etcd/server/v3", Module: "go.etcd.io/etcd/server/v3", Dir: "etcd"}
	Staticcheck           = Tool{Name: "staticcheck", Package: "honnef.co/go/tools/cmd/staticcheck", Module: "honnef.co/go/tools", Dir: "lint"}
	XCaddy                = Tool{Name: "xcaddy", Package: "github.com/caddyserver/xcaddy/cmd/xcaddy", Module: "github.com/caddyserver/xcaddy", Dir: "lint"}
	ControllerGen         = Tool{Name: "controller-gen", Package: "sigs.k8s.io/controller-tools/cmd/controller-gen", Module: "sigs.k8s.io/controller-tools", Dir: "lint"}
)

// The oldest apiservers that the product promises to work with: as hub 1.29, as
// a cluster behind the proxy 1.28 too.
var (
	KubeAPIServer129 = Tool{Name: "kube-apiserver-1.29", Package: "k8s.io/kubernetes/cmd/kube-apiserver", Module: "k8s.io/kubernetes", Dir: "kubernetes-1.29", StampVersion: true}
	KubeAPIServer128 = Tool{Name: "kube-apiserver-1.28", Package: "k8s.io/kubernetes/cmd/kube-apiserver", Module: "k8s.io/kubernetes", Dir: "kubernetes-1.28", StampVersion: true}
)

// All lists every tool that the short tests and the Makefile need, the slow ones
// first.
func All() []Tool {
	return []Tool{KubeAPIServer, Kubectl, Kubelet, KubeControllerManager, KubeScheduler, KubeProxy, Helm, Etcd, Staticcheck, XCaddy, ControllerGen}
}

// Older lists the tools that the long tests need besides.
func Older() []Tool { return []Tool{KubeAPIServer129, KubeAPIServer128} }

// Named returns the tool of that name.
func Named(name string) (Tool, bool) {
	for _, t := range append(All(), Older()...) {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

var errNoRoot = errors.New("neither the working directory nor this program lies in the repository")

// RepoRoot is the folder of the product's go.mod. It is looked for above the
// working directory, which `go test` and `go run` set, and then above this
// program's own file, as for bin/demo. Source paths are not asked: a build with
// -trimpath has none.
func RepoRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for _, below := range []string{wd, filepath.Dir(self)} {
		for dir := below; ; dir = filepath.Dir(dir) {
			if isRoot(dir) {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("finding the repository: %w", errNoRoot)
}

func isRoot(dir string) bool {
	for _, name := range []string{"go.mod", filepath.Join("integration", "tools")} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// CacheDir is where built programs are kept; it is created when missing.
func CacheDir() (string, error) {
	dir := os.Getenv("PROXYAUTH_CACHE")
	if dir == "" {
		base := os.Getenv("XDG_CACHE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("finding the cache folder: %w", err)
			}
			base = filepath.Join(home, ".cache")
		}
		dir = filepath.Join(base, "proxyauthk8s")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache folder: %w", err)
	}
	return dir, nil
}

// plan is a tool together with all that its build depends on.
type plan struct {
	Tool
	version string // of Module, as go.mod says, e.g. v1.37.2
	dir     string // absolute folder of the go.mod
	ldflags string
	file    string // absolute path of the finished program
}

func newPlan(t Tool) (*plan, error) {
	root, err := RepoRoot()
	if err != nil {
		return nil, err
	}
	p := &plan{Tool: t, dir: filepath.Join(root, "integration", "tools", t.Dir)}
	mod, err := os.ReadFile(filepath.Join(p.dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("reading the pins of %s: %w", t.Name, err)
	}
	sum, err := os.ReadFile(filepath.Join(p.dir, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("reading the pins of %s: %w", t.Name, err)
	}
	if p.version, err = versionOf(mod, t.Module); err != nil {
		return nil, fmt.Errorf("reading the pins of %s: %w", t.Name, err)
	}
	p.ldflags = "-s -w"
	if t.StampVersion {
		p.ldflags += stamp(p.version)
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, part := range []string{string(mod), string(sum), t.Package, p.ldflags, runtime.GOOS, runtime.GOARCH} {
		fmt.Fprintf(h, "%d\n%s", len(part), part)
	}
	p.file = filepath.Join(cache, fmt.Sprintf("%s-%s-%s", t.Name, p.version, hex.EncodeToString(h.Sum(nil))[:12]))
	return p, nil
}

func versionOf(mod []byte, module string) (string, error) {
	f, err := modfile.ParseLax("go.mod", mod, nil)
	if err != nil {
		return "", err
	}
	for _, r := range f.Require {
		if r.Mod.Path == module {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s", module)
}

// stamp is what the Kubernetes release scripts pass to the linker.
func stamp(version string) string {
	const p = " -X k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return p + "gitVersion=" + version + p + "gitMajor=" + major + p + "gitMinor=" + minor
}
