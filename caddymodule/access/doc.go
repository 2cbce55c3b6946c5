// Package access decides whether an authenticated user may make a request to a
// cluster. Today that is the required group, and the bound on answers that a
// caller does not read (Backlog). Further rules rest on the reading of paths,
// which is here too.
//
// # Why paths are read here
//
// A proxy that reads a path in another way than the server behind it allows one
// thing and lets the server do another. So there is one reading of a path in
// this project (URL-4). ParsePath decodes it once, takes %2F for a separator
// and ignores a trailing slash, as kube-apiserver does; Info asks the code of
// kube-apiserver itself (RequestInfoFactory) which verb, resource and name the
// request is about. Nothing here changes the bytes that go upstream.
//
// # Threat model
//
// Any client chooses any path. What an apiserver answers with 404 may be read
// otherwise by what stands in front of it, such as a load balancer that resolves
// dot segments. So dot segments are refused, escaped or not. Empty segments are
// reported, and refused where an allow list applies. Every other path is passed
// on byte for byte.
package access
