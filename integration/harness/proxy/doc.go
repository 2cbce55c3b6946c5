// Package proxy runs the product as its users do: the program built from
// xcaddy, a Caddyfile, a directory of manifests (or a hub), signals, reloads,
// and nothing that an operator could not do.
//
// The program is built once per test binary, with the race detector when
// PROXYAUTH_RACE=1 is in the environment. PROXYAUTH_BINARY names a finished
// program instead, e.g. one built by xcaddy or the image's.
package proxy
