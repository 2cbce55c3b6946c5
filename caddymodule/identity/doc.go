// Package identity turns the person the proxy authenticated into the headers
// a kube-apiserver believes, and keeps clients from writing those headers
// themselves. It is pure: no I/O, no clock, no configuration of its own.
//
// # Why it exists
//
// In FrontProxy the apiserver verifies a client certificate once and then
// believes every X-Remote-* header on the connection. Whoever can add one
// such header to a request, in any spelling that some hop understands, is
// whoever they say. So one package owns all of it: Forward decides whether
// an identity may be sent at all, Scrub removes what came from the client,
// and Assert writes what the proxy stands for. Relay, upgrades, virtual API
// reviews and the trust probe all go through the same three functions.
//
// # Threat model
//
//   - A client writes headers of its choice, in any spelling, repeated, named
//     in Connection, or as trailers. After Scrub and Assert the apiserver
//     derives exactly the asserted identity (ID-5, ID-7). Call them next to
//     the transport, after everything that edits headers for other reasons.
//   - Whoever writes names and groups in the identity provider's directory
//     chooses values. A value that would be a reserved system: name, or that
//     HTTP would not carry unchanged, refuses the whole request (ID-2); it is
//     never repaired, cut or left out.
//   - A refused value may be a secret, or an attack on whoever reads the log:
//     no message of this package holds it.
//
// Prefixes are the cluster author's; that they are present and reasonable is
// checked when the cluster is compiled, not here. The check for system: is
// made on the concatenated value, so that no prefix can build one.
package identity
