// Package upstream is the connection to one apiserver and everything that
// flows over it.
//
// A Pair is two HTTP transports with one credential: HTTP/1.1 for upgrades
// (exec, attach, port-forward), HTTP/2 where the apiserver offers it for the
// rest. A Registry knows the streams that are open, by cluster, and can end
// them: watches at the end of an event, WebSockets with a close frame.
//
// # Why it exists
//
// Caddy's own HTTP transport is configured once for a site and shares its
// connections between all requests. Here a connection is an identity: the
// front-proxy certificate is presented when it opens, and whoever gets to
// write on it may speak for anyone. So there is one Pair for each cluster and
// revision of its certificate, made from one immutable Config, and no way to
// make it dial anything but its target.
//
// # Threat model
//
//   - The apiserver is chosen by a cluster author who may be hostile to other
//     tenants. A Pair verifies its certificate always, follows no redirect,
//     bounds what it reads before the body, and turns a protocol switch that
//     nobody asked for into an error before anything is relayed (RELAY-4).
//   - A client may send trailers, which servers and gateways merge into
//     headers in their own ways, after the identity was asserted. A Pair sends
//     no trailers of requests (ID-7).
//   - A client may send a path that net/http would rewrite, or read as another
//     host. SetURL keeps the bytes (URL-3), and a Pair dials its own target
//     whatever the URL says.
//
// Nothing here knows who is asking: the identity is already in the headers
// when a request arrives (package identity).
package upstream
