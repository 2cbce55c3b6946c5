// Package probe asks an apiserver four questions: whether it honours the proxy,
// which user it sees behind a client certificate, which user a token belongs to,
// and whether it answers at all.
//
// CheckTrust sends a SelfSubjectReview as requests of users are sent: over the
// same connections, with the same certificate, and with an identity that the
// same code asserts (package identity). The identity is made up for the purpose:
// a name, a group and a fresh random extra value under the cluster's prefixes,
// and a random uid where uids are forwarded. The apiserver honours the proxy when
// all of it comes back:
//
//	Trusted       201, and name, group, extra (and uid) are the asserted ones
//	Rejected      401: it does not verify the certificate as a front proxy's
//	NotHonoured   201 with another name, or without group, extra or uid
//	Unknown       anything else; it proves nothing
//
// CheckClientCert is about a certificate that no apiserver should take for a
// user's: it sends a review with that certificate and no other credential. Review
// sends a review with a caller's token and returns the user in the answer
// (AUTH-8). Reach sends a request without any credential and returns the
// condition Reachable (REC-6).
//
// # Threat model
//
// The probe protects against a certificate that grants more, or less, than a
// front proxy's: one that --client-ca-file verifies makes every request run under
// the certificate's own name, and a missing header flag of the apiserver drops
// groups or extras silently.
//
// The apiserver itself is not trusted. It may answer anything, endlessly or not
// at all: the answer is limited, no redirect is followed, and the names it sends
// are made printable and short before they reach a status or a log. An apiserver
// that lies about honouring the proxy, or about the user of a token, harms only
// itself. A caller's token goes to that apiserver alone, and is in no error.
package probe
