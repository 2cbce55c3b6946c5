// Package access decides whether an authenticated user may make a request to a
// cluster: whether the user is in the required group, and whether answers that the
// user does not read leave room for another one (Backlog). It also reads paths, on
// which rules about resources will rest.
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
// dot segments. So dot segments are refused, escaped or not. Every other path is
// passed on byte for byte. Empty segments are reported for rules about resources,
// which must refuse them; this version has no such rules.
package access
