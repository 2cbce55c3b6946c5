// Package access decides whether an authenticated person may make a request
// to a cluster: the required group today, and the reading of paths that every
// further rule rests on.
//
// # Why paths are read here
//
// A proxy and the server behind it that read one path in two ways are a
// classic hole: the proxy allows what it understood, the server does what it
// understood. So there is one function, ParsePath, that reads a path as
// kube-apiserver does (URL-4): percent-decoded once, %2F as a separator, a
// trailing slash ignored. Its tests and fuzz target compare it with the
// RequestInfoFactory of k8s.io/apiserver itself. Nothing that is decided on a
// path reads it in another way, and nothing of what is decided here changes
// the bytes that go upstream.
//
// # Threat model
//
// Any client chooses any path. What an apiserver answers with 404 may still
// be read otherwise by what stands in front of it (a path base, an L7 load
// balancer that resolves dot segments), so dot segments are refused in their
// decoded form; empty segments are reported and refused where an allow list
// applies. Everything else passes byte for byte.
package access
