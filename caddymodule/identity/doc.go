// Package identity turns the user that the proxy authenticated into the headers
// that a kube-apiserver believes, and keeps clients from writing those headers
// themselves. It is pure: no I/O, no clock, no configuration of its own.
//
// # Why it exists
//
// In FrontProxy the apiserver verifies a client certificate once and then
// believes every X-Remote-* header on the connection. A client that can add one
// such header to a request, in any spelling that some hop understands, can take
// any name. So one package owns these headers: Forward decides whether an
// identity may be sent at all, Scrub removes what came from the client, and
// Assert writes the identity. Requests, upgrades and the trust probe call the same
// functions.
//
// # Threat model
//
//   - A client writes headers of its choice, in any spelling, repeated, named
//     in Connection, or as trailers. After Scrub and Assert the apiserver
//     derives exactly the asserted identity (ID-5, ID-7). Call them next to
//     the transport, after everything that edits headers for other reasons.
//   - The administrators of the identity provider choose names and groups. An
//     identity with a reserved system: name, or with a value that HTTP would not
//     carry unchanged, is not forwarded at all (ID-2): it is a Violation, and
//     never repaired, cut or partly left out.
//   - A value that violates a rule may be a secret, or an attack on the reader
//     of the log: no message of this package holds it.
//
// The cluster author chooses the prefixes. Whether they are present and
// reasonable is checked when the cluster is compiled, not here. The check for
// system: looks at the concatenated value, so that no prefix can build one.
package identity
