// Package integration holds the tests that run the product and the mechanisms
// it depends on against real apiservers, identity providers and clients.
//
// suites holds the tests, a folder for each subject. harness holds what they
// are written with:
//
//   - realtools builds kube-apiserver, etcd, kubectl and the tools,
//   - pki issues certificates, process runs child processes,
//   - kube starts apiservers, reads their audit logs and runs kubectl,
//   - node starts a whole node, on which pods run,
//   - conformance runs Kubernetes' own conformance tests on a node,
//   - hub prepares an apiserver whose ProxyKubeApi objects the product reads,
//   - oidc is a real OpenID provider that can be made to misbehave,
//   - rawserver and rawclient are the two ends of a wire that is looked at
//     byte by byte,
//   - proxy runs the product,
//   - schemas has the CRDs of other projects,
//   - onceworld keeps what the tests of a package share,
//   - leakcheck searches what was written and sent for credentials.
package integration
