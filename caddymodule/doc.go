// Package caddymodule is the Caddy side of ProxyAuthK8S: modules that parse,
// provision and delegate, one file each.
//
// A request runs through two modules. The handler (http.handlers.proxyauth)
// finds the cluster in an immutable snapshot, authenticates the bearer, decides
// and leaves its decision in the request's context under an unexported key.
// Caddy's reverse_proxy then calls the transport
// (http.reverse_proxy.transport.proxyauth), the last code before the wire: it
// deletes whatever a client could have set and writes the asserted identity.
// The identity is written there and not in the handler because reverse_proxy
// removes, after all handlers ran, every header that the client's Connection
// header names.
//
// # Threat model
//
// The client controls every byte of the request. It must not be able to add,
// change or remove an asserted header, to reach an apiserver that is not the
// one its URL names, or to learn a credential from an answer, a log line or a
// metric. The author of a ProxyKubeApi is trusted with their own apiserver only:
// nothing in the object may choose another cluster's certificate. An apiserver
// that misbehaves must not harm another cluster. A request that cannot be decided
// is refused with a clear message: there is no fallback from one upstream mode to
// another.
package caddymodule
