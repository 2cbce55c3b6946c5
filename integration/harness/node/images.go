package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// BusyBox is an image of every node: busybox under all its names and the
// program fetch of this package, without an entry point. Pods use it, like
// every image, with imagePullPolicy Never.
const BusyBox = "busybox:test"

// pauseImage holds the namespaces of a pod.
const pauseImage = "docker.io/library/pause:test"

// ownImages are those of every node.
func (n *Node) ownImages(ctx context.Context) ([]Image, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("making the images of a node: %w", err)
	}
	list, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the programs of busybox: %w", err)
	}
	links := map[string]string{}
	for _, name := range strings.Fields(string(list)) {
		if name != "busybox" {
			links["/bin/"+name] = "/bin/busybox"
		}
	}
	fetch, err := n.buildFetch(ctx)
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=/bin"}
	return []Image{
		{Name: BusyBox, Files: map[string]string{"/bin/busybox": busybox, "/bin/fetch": fetch}, Links: links, Env: env, Cmd: []string{"sh"}},
		{Name: pauseImage, Files: map[string]string{"/bin/busybox": busybox}, Links: links, Env: env, Entrypoint: []string{
			"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000000 & wait $!; done",
		}},
	}, nil
}

// ProxyImage is the image of the product, laid out as xcaddy/Containerfile says,
// with the system roots left out: there is no way from a node to a public
// server.
func ProxyImage(ctx context.Context, name string) (Image, error) {
	binary, err := proxy.Binary(ctx) // without cgo, so that it needs no libraries
	if err != nil {
		return Image{}, err
	}
	return Image{
		Name: name, Files: map[string]string{"/usr/bin/caddy": binary},
		Folders: []string{"/data", "/run/proxyauth"}, User: "65532:65532", WorkingDir: "/",
		Env:        []string{"PATH=/usr/bin", "HOME=/data", "XDG_CONFIG_HOME=/data/config", "XDG_DATA_HOME=/data/data"},
		Entrypoint: []string{"/usr/bin/caddy"},
		Cmd:        []string{"run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"},
	}, nil
}

// buildFetch builds the program fetch and returns its path.
func (n *Node) buildFetch(ctx context.Context) (string, error) {
	root, err := realtools.RepoRoot()
	if err != nil {
		return "", err
	}
	file := n.path("fetch")
	return file, BuildStatic(ctx, filepath.Join(root, "integration"), "./harness/node/fetch", file)
}

// BuildStatic builds a package of the module in dir to a program that needs no
// libraries, so that an image needs nothing else.
func BuildStatic(ctx context.Context, dir, pkg, output string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", output, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "PWD="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, bytes.TrimSpace(out))
	}
	return nil
}
