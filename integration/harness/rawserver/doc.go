// Package rawserver stands in for an apiserver where a real one would hide too
// much or behave too well: it keeps the bytes of every request as they came,
// says which identity kube-apiserver's request-header authenticator (its own
// code) derives from them, and answers whatever a test tells it to: streams
// with pauses, upgrades, nonsense, silence.
//
// HTTP/1.1 is spoken here byte by byte; on HTTP/2 requests are recorded as
// decoded fields. Like an apiserver it asks for a client certificate without
// demanding one, and answers a request without an identity with 401.
//
// Unless told otherwise it answers /version and SelfSubjectReviews itself, as
// an apiserver would, so that a proxy that probes before it relays finds what
// it expects; those of the proxy's probe are not among Requests.
package rawserver
