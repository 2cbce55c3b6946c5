package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// clusterDomain is the suffix of the names of Services.
const clusterDomain = "cluster.local"

// kubeconfig writes that of a part of the cluster and returns its path.
func (n *Node) kubeconfig(user string, groups ...string) (string, error) {
	pair, err := n.API.PKI.ClientCA.Client(user, groups...)
	if err != nil {
		return "", err
	}
	file := n.path(strings.ReplaceAll(user, ":", "-") + ".kubeconfig")
	return file, kube.WriteKubeconfig(file, kube.Access{
		Server: n.API.URL, CA: n.API.PKI.ServerCA.PEM, ClientCert: pair.CertPEM, ClientKey: pair.KeyPEM,
	})
}

func (n *Node) startControllerManager(ctx context.Context) error {
	kubeconfig, err := n.kubeconfig("system:kube-controller-manager")
	if err != nil {
		return err
	}
	serverCA, err := n.write("server-ca.crt", string(n.API.PKI.ServerCA.PEM))
	if err != nil {
		return err
	}
	key, err := n.write("sa.key", string(n.API.PKI.ServiceAccount.KeyPEM))
	if err != nil {
		return err
	}
	return n.runTool(ctx, realtools.KubeControllerManager,
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1",
		"--use-service-account-credentials=true", "--service-account-private-key-file="+key, "--root-ca-file="+serverCA,
		"--authorization-always-allow-paths=/healthz", "--cert-dir="+n.path("kube-controller-manager"),
	)
}

func (n *Node) startScheduler(ctx context.Context) error {
	kubeconfig, err := n.kubeconfig("system:kube-scheduler")
	if err != nil {
		return err
	}
	return n.runTool(ctx, realtools.KubeScheduler,
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1",
		"--cert-dir="+n.path("kube-scheduler"),
	)
}

// kubeletConfig has these peculiarities: control groups are left to runc, so
// that a machine without systemd or with cgroup v1 does; and a full disk is
// nothing to evict pods or remove images for, which could not be pulled again.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %[2]s}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
clusterDNS: [%[1]s]
clusterDomain: %[3]s
containerRuntimeEndpoint: unix://%[4]s
enforceNodeAllocatable: []
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 2s
readOnlyPort: 0
resolvConf: %[5]s
`

func (n *Node) startKubelet(ctx context.Context) error {
	kubeconfig, err := n.kubeconfig("system:node:"+Name, "system:nodes")
	if err != nil {
		return err
	}
	clientCA, err := n.write("client-ca.crt", string(n.API.PKI.ClientCA.PEM))
	if err != nil {
		return err
	}
	config, err := n.write("kubelet.yaml", fmt.Sprintf(kubeletConfig, Address, clientCA, clusterDomain, containerdSocket, n.path("resolv.conf")))
	if err != nil {
		return err
	}
	return n.runTool(ctx, realtools.Kubelet,
		"--config="+config, "--kubeconfig="+kubeconfig, "--hostname-override="+Name, "--node-ip="+Address)
}

// kubeProxyConfig leaves the settings of connection tracking alone, which
// belong to the whole machine.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
bindAddress: %[1]s
clientConnection: {kubeconfig: %[2]s}
clusterCIDR: %[3]s
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}
healthzBindAddress: 127.0.0.1:10256
hostnameOverride: %[4]s
metricsBindAddress: 127.0.0.1:10249
`

func (n *Node) startKubeProxy(ctx context.Context) error {
	kubeconfig, err := n.kubeconfig("system:kube-proxy")
	if err != nil {
		return err
	}
	config, err := n.write("kube-proxy.yaml", fmt.Sprintf(kubeProxyConfig, Address, kubeconfig, podCIDR, Name))
	if err != nil {
		return err
	}
	return n.runTool(ctx, realtools.KubeProxy, "--config="+config)
}
