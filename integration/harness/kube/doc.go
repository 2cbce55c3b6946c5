// Package kube starts real etcd and kube-apiserver processes on 127.0.0.1 and
// gives access to them: an administrator's client configuration, kubectl, and
// the audit log as typed events.
//
// A cluster has no kubelet and no controllers: what needs those (pods that
// run, tokens of a default ServiceAccount, the removal of namespaces, the
// aggregation of ClusterRoles) does not happen. The one part that identity
// tests depend on, the rules of the ClusterRoles view, edit and admin, is
// filled in at start as the aggregation controller would.
//
// Functions take a context and return errors, so that programs can use them;
// Start and its kin are the same for tests, with cleanup.
package kube
