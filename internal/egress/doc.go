// Package egress decides where connections on behalf of an object may not lead
// (denied_targets).
//
// # Why it exists
//
// The author of a ProxyKubeApi names the apiserver, the issuer and the token
// endpoint that the proxy connects to. Without limits an author reaches through
// the proxy what only the proxy reaches: an admin API on its loopback interface,
// a cloud's metadata service on a link-local address, programs beside it in its
// pod. This is server-side request forgery (SSRF).
//
// # Threat model
//
// An author controls the host name, and the DNS zone that answers for it. A name
// that is looked up twice may have two answers. So each address is judged where
// it is dialled, after the look-up, in the hook of the socket; nothing looks the
// name up again. Several spellings mean one IPv4 address: mapped into IPv6,
// translated (NAT64), 6to4, IPv4-compatible. The IPv4 address in them is judged
// too, and zones are ignored.
//
// A name is only compared with the host that an object, or a provider in its
// discovery document, writes. Authors can give the same server another name, so
// only a denied address keeps them from it.
//
// What the kernel or the network does after the dial is not seen here: the
// address of a Service that kube-proxy replaces, a NAT64 prefix of the network's
// own, a router. A NetworkPolicy or a firewall sees that.
package egress
