// Package probe asks an apiserver whether it honours the proxy, what it takes a
// client certificate for, whose a caller's token is, and whether it answers.
//
// Check, one probe, is a SelfSubjectReview sent as the relay would send a request:
// over the same connection, with the same certificate, and with an identity
// asserted by the same code (package identity). The identity is made up for
// the purpose: a name, a group and a fresh random extra value under the
// cluster's prefixes, and a random uid where uids are forwarded. The apiserver
// honours the proxy when all of it comes back:
//
//	Trusted       201, and name, group, extra (and uid) are the asserted ones
//	Rejected      401: it does not verify the certificate as a front proxy's
//	NotHonoured   201 with another name, or without group, extra or uid
//	Unknown       anything else; it proves nothing
//
// CheckClientCert is for a certificate that must be nobody's: it asks whom the
// apiserver sees in a request with that certificate and no other credential.
// Review asks whom it sees in a request with a caller's token (AUTH-8). Reach asks
// whether there is an apiserver at all, as nobody.
//
// # Threat model
//
// What the probe protects against is a certificate that is more, or less, than
// a front proxy's: one that --client-ca-file verifies makes every request run
// under the certificate's own name, and a missing header flag drops groups or
// extras in silence.
//
// The apiserver itself is not trusted. It may answer anything, endlessly or not
// at all: the answer is bounded, no redirect is followed, and what it says
// about who it saw is made printable and short before it reaches a status or a
// log. It is not asked to prove more than it must: an apiserver that lies about
// honouring the proxy, or about who its callers are, harms itself alone. A caller's
// token goes to it and nowhere else, and is in no error.
package probe
