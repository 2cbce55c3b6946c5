// Package clients runs the clients of others: @kubernetes/client-node, the Python
// client of Debian, helm, kustomize, stern, k9s and a controller-runtime manager.
// Each does the same on one node in three ways, and must come to the same result:
//
//   - directly, with a client certificate for proxyauth:alice;
//   - through the proxy in the path form, with a bearer for alice of an OpenID
//     provider, whom the proxy forwards under that name;
//   - through the proxy in the host form, with the bearer from a command that the
//     kubeconfig names.
//
// The apiserver knows no provider, so a bearer that works went through the proxy.
// Certificates are verified throughout. docs/clients.md says what came of it.
package clients
