// Package integration holds the tests that run the product and the mechanisms
// it depends on against real apiservers, identity providers and clients. The
// packages below it are the harness:
//
//   - realtools builds kube-apiserver, etcd, kubectl and the tools,
//   - pki issues certificates, process runs child processes,
//   - kube starts apiservers, reads their audit logs and runs kubectl,
//   - oidc is a real OpenID provider that can be made to misbehave,
//   - rawserver and rawclient are the two ends of a wire that is looked at
//     byte by byte,
//   - proxy runs the product,
//   - onceworld keeps what the tests of a package share,
//   - leakcheck searches what was written and sent for credentials.
package integration
