// Package frontproxy holds the tests of the central path on real components:
// kubectl and raw clients go in, a real kube-apiserver that has no OIDC flag
// sees the asserted identity, and its audit log says so.
//
// The tests share an OpenID provider, two apiservers on one etcd and one
// proxy, which start once. What needs a proxy or apiserver of its own is in
// the packages below: trust (an apiserver that does not honour the proxy) and
// crowd (many users over few connections).
package frontproxy
