// Package request decides whether one request may go to an apiserver, sends it
// there, and answers it when it may not.
//
// The checks of section 3 of docs/reference.md are a list in check.go, in their
// order. Each check reads the request and the clusters, writes what it found out
// into a Decision, and may return a Refusal; it counts nothing and logs nothing.
// Send is the last code before the wire: it builds the outgoing request from the
// Decision and removes everything a client could have put there. A Request is
// the response writer of one request: when the headers of the response are sent
// it commits, once, which counts the request and writes the audit line.
//
// A request whose cluster moves before anything was sent is decided again, up to
// three times, on what is in force then. Because checks have no effect outside of
// their Decision and commit runs once, no such request is counted or audited
// twice. A quota (row 13) must keep to this too: its check takes a reservation
// into the Request, a second decision for the same caller and cluster finds it
// there, and commit charges it, or gives it back when the request was refused.
//
// # Threat model
//
// The client controls every byte of the request. It must not be able to add,
// change or remove an asserted header, to be decided on as one request and
// relayed as another, or to learn a credential from an answer, a log line or
// the audit. So the path is read once, as the apiserver reads it, and goes
// upstream byte for byte; the credential is taken out of the headers when it is
// read; and no text of an answer holds what the client or an apiserver sent,
// except for the name of a group that the object's author demands.
package request
