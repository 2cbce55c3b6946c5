package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// imagePackages are the programs of Debian that commands of the tests name and
// busybox lacks, or has with other options.
var imagePackages = []realtools.DebianPackage{
	{Name: "bash", File: "bash"},
	{Name: "curl", File: "curl"},
	{Name: "netcat-openbsd", File: "/bin/nc.openbsd"},
	{Name: "busybox-static", File: "busybox"},
}

// registry is where the tests take their images from, had the node a way out.
const registry = "registry.k8s.io/e2e-test-images/"

// accounts are the users that the tests expect in agnhost.
var accounts = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
	"/etc/group":         "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\nnobody:x:65534:\n",
	"/etc/nsswitch.conf": "hosts: files dns\n",
}

// images are those that the tests name, at the versions that they name, made of
// the pinned sources and of programs of this machine. nginx is busybox's server
// under that name: the tests ask it for a page at most.
func images(ctx context.Context) ([]node.Image, error) {
	if err := realtools.Debian(ctx, nil, imagePackages...); err != nil {
		return nil, err
	}
	shell, err := busybox(ctx)
	if err != nil {
		return nil, err
	}
	// The shell of busybox keeps variables such as data-1 from its children.
	if shell, err = withPrograms(ctx, shell, map[string]string{"/bin/sh": "bash", "/bin/bash": "bash"}); err != nil {
		return nil, err
	}
	full, err := withPrograms(ctx, shell, map[string]string{
		"/bin/curl": "curl", "/bin/nc": "/bin/nc.openbsd", "/bin/getent": "getent",
	})
	if err != nil {
		return nil, err
	}
	agnhost, err := withTool(ctx, full, "/agnhost", realtools.Agnhost)
	if err != nil {
		return nil, err
	}
	serving, err := pair()
	if err != nil {
		return nil, err
	}
	agnhost.Texts["/localhost.crt"], agnhost.Texts["/localhost.key"] = string(serving.CertPEM), string(serving.KeyPEM)
	agnhost.Links["/agnhost-2"] = "/agnhost"
	agnhost.Cmd = []string{"pause"}
	nonewprivs, err := withTool(ctx, shell, "/usr/local/bin/nnp", realtools.Nonewprivs)
	if err != nil {
		return nil, err
	}
	nonewprivs.Entrypoint, nonewprivs.Cmd = nil, []string{"/usr/local/bin/nnp"}
	sample, err := withTool(ctx, shell, "/sample-apiserver", realtools.SampleAPIServer)
	if err != nil {
		return nil, err
	}
	etcd, err := withTool(ctx, shell, "/usr/local/bin/etcd", realtools.Etcd)
	if err != nil {
		return nil, err
	}
	nginx := clone(shell)
	nginx.Texts["/usr/share/nginx/html/index.html"] = "<h1>Welcome to nginx!</h1>\n"
	nginx.Cmd = []string{"httpd", "-f", "-p", "80", "-h", "/usr/share/nginx/html"}
	pause := clone(shell)
	pause.Entrypoint = []string{"sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 1000000 & wait $!; done"}
	nonroot := clone(shell)
	nonroot.User = "1234"
	return []node.Image{
		named(agnhost, "agnhost:2.66.1", "agnhost:2.55"),
		named(full, "glibc-dns-testing:2.1.1"),
		named(shell, "busybox:1.37.0-2"),
		named(nginx, "nginx:1.27.0-2", "nginx:1.28.0-2"),
		named(page(agnhost, "nautilus.jpg"), "nautilus:1.8"),
		named(page(agnhost, "kitten.jpg"), "kitten:1.8"),
		named(nonewprivs, "nonewprivs:1.4"),
		named(nonroot, "nonroot:1.5"),
		named(sample, "sample-apiserver:1.29.2"),
		named(etcd, "../etcd:3.7.0-0"),
		named(pause, "../pause:3.10.2"),
	}, nil
}

// page is a server of one file, by which the tests tell images apart.
func page(agnhost node.Image, picture string) node.Image {
	i := clone(agnhost)
	i.Texts["/data.json"] = fmt.Sprintf("{\n  \"image\": %q\n}\n", picture)
	i.Cmd = []string{"test-webserver"}
	return i
}

// pair is a certificate with which agnhost serves TLS.
func pair() (*pki.KeyPair, error) {
	ca, err := pki.NewCA("agnhost-ca")
	if err != nil {
		return nil, err
	}
	return ca.Server()
}

// named gives an image its names, below registry or, with ../, beside it.
func named(i node.Image, name string, others ...string) node.Image {
	full := func(name string) string {
		if beside, ok := strings.CutPrefix(name, "../"); ok {
			return filepath.Dir(strings.TrimSuffix(registry, "/")) + "/" + beside
		}
		return registry + name
	}
	i.Name = full(name)
	for _, o := range others {
		i.Others = append(i.Others, full(o))
	}
	return i
}

// busybox has busybox under all its names.
func busybox(ctx context.Context) (node.Image, error) {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return node.Image{}, fmt.Errorf("making the images of the tests: %w", err)
	}
	list, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return node.Image{}, fmt.Errorf("listing the programs of busybox: %w", err)
	}
	i := node.Image{
		Files: map[string]string{"/bin/busybox": program}, Links: map[string]string{}, Texts: maps.Clone(accounts),
		Env: []string{"PATH=/bin:/usr/local/bin"}, Cmd: []string{"sh"},
	}
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" {
			i.Links["/bin/"+name] = "/bin/busybox"
		}
	}
	return i, nil
}

func clone(i node.Image) node.Image {
	i.Files, i.Links, i.Texts = maps.Clone(i.Files), maps.Clone(i.Links), maps.Clone(i.Texts)
	return i
}

// withTool adds a program and makes it what a container runs.
func withTool(ctx context.Context, i node.Image, path string, t realtools.Tool) (node.Image, error) {
	program, err := realtools.Path(ctx, t, nil)
	if err != nil {
		return i, err
	}
	i, err = withPrograms(ctx, i, map[string]string{path: program})
	i.Entrypoint, i.Cmd = []string{path}, nil
	return i, err
}

// withPrograms adds programs of this machine with the libraries that they load.
func withPrograms(ctx context.Context, i node.Image, programs map[string]string) (node.Image, error) {
	i = clone(i)
	for path, name := range programs {
		program, err := exec.LookPath(name)
		if err != nil {
			return i, fmt.Errorf("making the images of the tests: %w", err)
		}
		out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("not a dynamic executable")) {
			return i, fmt.Errorf("listing the libraries of %s: %w: %s", name, err, bytes.TrimSpace(out))
		}
		delete(i.Links, path)
		i.Files[path] = program
		for _, library := range libraries(string(out)) {
			i.Files[library] = library
		}
	}
	return i, nil
}

// libraries are the files in the output of ldd.
func libraries(out string) (files []string) {
	for field := range strings.FieldsSeq(out) {
		if strings.HasPrefix(field, "/") {
			files = append(files, field)
		}
	}
	return files
}
