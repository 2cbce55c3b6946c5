// Package upstream is the connection to one apiserver and everything that flows
// over it.
//
// A Pair is two HTTP transports with one credential: HTTP/1.1 for upgrades
// (exec, attach, port-forward), and HTTP/2, where the apiserver offers it, for
// other requests. A Registry knows the streams that are open, by cluster and by
// user, and can end them: watches after a whole event, WebSockets with a close
// frame.
//
// # Why it exists
//
// Caddy's own HTTP transport is configured once for a site and shares its
// connections between all requests. Here a connection is an identity: it
// presents the front-proxy certificate when it opens, and every request on it
// may assert any user. So there is one Pair for each cluster and revision of its
// certificate, made from one immutable Config, and it dials nothing but its
// target.
//
// # Threat model
//
//   - A cluster author chooses the apiserver and may be hostile to other
//     tenants. A Pair always verifies the certificate, follows no redirect,
//     limits what it reads before the body, and turns a protocol switch that the
//     client did not ask for into an error before anything is relayed (RELAY-4).
//     Direct refuses the addresses to which the proxy admin lets no object lead
//     (package egress).
//   - A client may send trailers, which servers and gateways merge into headers
//     in their own ways, after the identity was asserted. A Pair sends no
//     trailers of requests (ID-7).
//   - A client may send a path that net/http would rewrite, or read as another
//     host. SetURL keeps the bytes (URL-3), and a Pair dials its own target
//     whatever the URL says.
//
// This package does not decide which user a request asserts: the identity is in
// the headers before a request arrives here (package identity).
package upstream
