// Package balancers runs nginx and HAProxy, as Debian packs them, in front of the
// product, with the configurations of docs/balancers and the servers block of
// Caddyfile.examples/balancer.Caddyfile. Each passes TLS through or ends it.
//
// Behind the proxy is a server that records what comes. The long tests have a node
// with pods there, and kubectl in front.
package balancers
