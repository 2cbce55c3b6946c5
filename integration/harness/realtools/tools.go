package realtools

import "slices"

// Tool is one program that can be built.
type Tool struct {
	// Name is the file name of the program.
	Name string
	// Package is the import path of its main package.
	Package string
	// Module is the module with the version of the program.
	Module string
	// Dir is the folder below integration/tools that pins it.
	Dir string
	// StampVersion has the linker write the version into the program, as the
	// Kubernetes releases do: clients compare it, and "v0.0.0-master" is odd.
	StampVersion bool
	// Test says that Package is tests, and the program what go test -c makes of
	// them.
	Test bool
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

// Kubectl129 is an older kubectl.
var Kubectl129 = Tool{Name: "kubectl-1.29", Package: "k8s.io/kubernetes/cmd/kubectl", Module: "k8s.io/kubernetes", Dir: "kubectl-1.29", StampVersion: true}

// SampleAPIServer is Kubernetes' own example of an aggregated API server.
var SampleAPIServer = Tool{Name: "sample-apiserver", Package: "k8s.io/sample-apiserver", Module: "k8s.io/sample-apiserver", Dir: "sample-apiserver"}

// Clients of others, which the long tests run through the proxy, and a manager of
// controller-runtime, whose source is in the folder that pins it.
var (
	K9s       = Tool{Name: "k9s", Package: "github.com/derailed/k9s", Module: "github.com/derailed/k9s", Dir: "k9s"}
	Stern     = Tool{Name: "stern", Package: "github.com/stern/stern", Module: "github.com/stern/stern", Dir: "stern"}
	Kustomize = Tool{Name: "kustomize", Package: "sigs.k8s.io/kustomize/kustomize/v5", Module: "sigs.k8s.io/kustomize/kustomize/v5", Dir: "kustomize"}
	Manager   = Tool{Name: "manager", Package: "github.com/proxyauthk8s/caddy-proxyauthk8s/integration/tools/manager", Module: "sigs.k8s.io/controller-runtime", Dir: "manager"}
)

// What Kubernetes' conformance tests need: the tests, the program that runs
// several of them at once, and programs of the images that they ask for.
var (
	E2ETest    = Tool{Name: "e2e.test", Package: "k8s.io/kubernetes/test/e2e", Module: "k8s.io/kubernetes", Dir: "conformance", StampVersion: true, Test: true}
	Ginkgo     = Tool{Name: "ginkgo", Package: "github.com/onsi/ginkgo/v2/ginkgo", Module: "github.com/onsi/ginkgo/v2", Dir: "conformance"}
	Agnhost    = Tool{Name: "agnhost", Package: "k8s.io/kubernetes/test/images/agnhost", Module: "k8s.io/kubernetes", Dir: "conformance"}
	Nonewprivs = Tool{Name: "nonewprivs", Package: "k8s.io/kubernetes/test/images/nonewprivs", Module: "k8s.io/kubernetes", Dir: "conformance"}
)

// All lists every tool that the short tests and the Makefile need, the slow ones
// first.
func All() []Tool {
	return []Tool{KubeAPIServer, Kubectl, Kubelet, KubeControllerManager, KubeScheduler, KubeProxy, Helm, Etcd, Staticcheck, XCaddy, ControllerGen}
}

// Older lists the older apiservers, which the long tests alone need.
func Older() []Tool { return []Tool{KubeAPIServer129, KubeAPIServer128} }

// Clients lists the clients of others, which the long tests alone need.
func Clients() []Tool { return []Tool{K9s, Stern, Kustomize, Manager} }

// Conformance lists what the conformance tests need beside All.
func Conformance() []Tool { return []Tool{E2ETest, Ginkgo, Agnhost, Nonewprivs, SampleAPIServer} }

// OnlyNamed lists what is built only when it is named.
func OnlyNamed() []Tool {
	return slices.Concat(Older(), []Tool{Kubectl129}, Clients(), Conformance())
}

// Named returns the tool of that name.
func Named(name string) (Tool, bool) {
	for _, t := range append(All(), OnlyNamed()...) {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}
