// Package compile turns one ProxyKubeApi, with the Secrets, ConfigMaps and
// Services it names, into a k8swatch.Cluster.
//
// The Cluster says where the apiserver is, what verifies its certificate, which
// certificate the proxy presents, how bearers are validated, and why the cluster
// may not serve, if it may not. All reasons are collected and told in a fixed
// order (section 7 of the reference).
//
// A read that fails must not close a cluster that works. Therefore the last good
// value of each reference stays in force while the object goes on naming the
// same place, and a certificate until it expires (CERT-6, CERT-7). What the
// administrator withdraws is dropped at once and does not come back (CERT-5).
//
// # Threat model
//
// Author and contents are not trusted. Everything that is parsed or compiled has
// a bound, since one compiler works for all tenants: the size of certificates
// and keys (package keypair), the cost of CEL expressions (package safecel) for
// one object together. A panic over one object closes that object only.
package compile
