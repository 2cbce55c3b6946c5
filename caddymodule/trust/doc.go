// Package trust knows what an apiserver makes of the proxy's certificates, and
// keeps requests away from one that would misunderstand them.
//
// In FrontProxy the proxy asserts an identity in X-Remote-* headers. An
// apiserver that does not verify the front-proxy certificate, or does not read
// those headers, would take the request for that of another user. In Passthrough
// a client_cert that the apiserver takes for an identity outranks the caller's
// token. So each certificate has a Gate that is closed until a probe of this
// replica has shown what the apiserver does, and every request looks at the
// gate of its cluster first.
//
// A Trust holds what is known of one version of a cluster: its gates, whether
// the apiserver answers, and the last verdict read from the status. The Prober
// asks all apiservers on a schedule, while this replica leads.
//
// # Threat model
//
// Only an answer of the apiserver itself opens a gate. The status of an object
// can be written by others: it may close a gate and never opens one. A verdict
// belongs to one trust key, a digest of target, CA, server name, certificate and
// prefixes: with another key the gate begins closed. The authors of objects
// choose the addresses that are probed, so a thousand addresses that do not
// answer must delay no probe of another namespace.
package trust
