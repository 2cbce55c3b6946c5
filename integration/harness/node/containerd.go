package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

const containerdSocket = "/run/containerd/containerd.sock"

// containerdConfig: without CAP_SYS_RESOURCE, which a container that runs the tests may lack, no
// score for the out-of-memory killer may be lowered.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "%[1]s"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "%[2]s"
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "%[5]s"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%[3]s"
conf_dir = "%[4]s"
`

const podNetwork = `{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "/run/cni",
        "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// Snapshotters: native copies an image for each container, and works on every
// file system.
const (
	nativeSnapshotter  = "native"
	overlaySnapshotter = "overlayfs"
)

// chooseSnapshotter takes the faster one where the file system of the node's
// folder allows it.
func (n *Node) chooseSnapshotter(ctx context.Context) error {
	n.snapshotter = nativeSnapshotter
	if !n.largeImages {
		return nil
	}
	var dirs [4]string
	for i, name := range []string{"lower", "upper", "work", "merged"} {
		dirs[i] = n.path("overlay", name)
		if err := os.MkdirAll(dirs[i], 0o700); err != nil {
			return fmt.Errorf("trying overlayfs: %w", err)
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dirs[0], dirs[1], dirs[2])
	if n.Run(exec.CommandContext(ctx, "mount", "-t", "overlay", "overlay", "-o", options, dirs[3])) != nil {
		return nil
	}
	n.snapshotter = overlaySnapshotter
	return n.Run(exec.CommandContext(ctx, "umount", dirs[3]))
}

// startContainerd starts containerd and gives it the images of every node.
func (n *Node) startContainerd(ctx context.Context) error {
	if err := n.chooseSnapshotter(ctx); err != nil {
		return err
	}
	if _, err := n.write("cni/pods.conflist", fmt.Sprintf(podNetwork, podCIDR)); err != nil {
		return err
	}
	config, err := n.write("containerd.toml", fmt.Sprintf(containerdConfig, containerdSocket, pauseImage, cniPlugins, n.path("cni"), n.snapshotter))
	if err != nil {
		return err
	}
	binary, err := exec.LookPath("containerd")
	if err != nil {
		return fmt.Errorf("starting containerd: %w", err)
	}
	if err := n.run("containerd", binary, "--config="+config); err != nil {
		return err
	}
	if err := n.poll(ctx, "containerd", func(ctx context.Context) error { return n.ctr(ctx, "version") }); err != nil {
		return err
	}
	images, err := n.ownImages(ctx)
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := n.AddImage(ctx, image); err != nil {
			return err
		}
	}
	return nil
}

// ctr runs containerd's own client.
func (n *Node) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address=" + containerdSocket, "--namespace=k8s.io"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Run(cmd); err != nil {
		return fmt.Errorf("running ctr %q: %w: %s", args, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
