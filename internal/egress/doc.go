// Package egress says where connections on behalf of an object may not lead.
//
// # Why it exists
//
// The author of a ProxyKubeApi names the apiserver, the issuer and the token
// endpoint that the proxy connects to. Without limits an author reaches through
// the proxy what only the proxy reaches: its own admin API on the loopback
// interface, a cloud's metadata service on a link-local address, programs beside
// it in its pod (server-side request forgery).
//
// # Threat model
//
// An author controls the host name, and the DNS zone that answers for it. A name
// that is looked up twice may have two answers, so the address is looked at where
// it is dialled, after the look-up, in the socket's own control hook. Several
// spellings mean one IPv4 address: mapped into IPv6, translated (NAT64), 6to4,
// IPv4-compatible. All of them are read back before they are compared.
package egress
