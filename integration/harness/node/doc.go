// Package node starts a real Kubernetes cluster of one node, on which pods
// run: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// kube-proxy, the kubelet and containerd with runc, a bridge network for the
// pods and the cluster's DNS names. It needs root; packages that Debian has
// (see packages.go) it installs when they are missing.
//
// All of a node is in network, mount and PID namespaces of its own, below one
// first process (init.sh). The host's network, mounts and services are not
// touched, several nodes can run side by side with the same addresses, and the
// end of the first process, which the kernel also brings about when the test
// is killed, is the end of every process, mount, address and firewall rule.
// Outside remain the folder that the caller gave and empty control groups,
// which Stop removes.
//
// A test reaches the node with Dial, a client of API.AdminConfig, Kubectl and
// Helm, or with any program by Run. There is no way out: images are made here
// (LoadImage), and pods that use them have imagePullPolicy Never.
package node
