package node

import "github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"

// cniPlugins is where Debian keeps the plugins.
const cniPlugins = "/usr/lib/cni"

var packages = []realtools.DebianPackage{
	{Name: "containerd", File: "containerd"},
	{Name: "runc", File: "runc"},
	{Name: "containernetworking-plugins", File: cniPlugins + "/bridge"},
	{Name: "busybox-static", File: "busybox"},
	{Name: "iptables", File: "iptables"},
	{Name: "iproute2", File: "ip"},
}
