// Package docs tests that the examples of the documentation work. The program
// itself adapts and validates each Caddyfile of Caddyfile.examples and each fenced
// Caddyfile snippet of the pages. Each ProxyKubeApi of the pages and of docs/idp
// passes admission and the compiler. The manifests of docs/idp are tried on claims
// as the vendors document them, and give the identities that their pages name.
// Links lead to pages and headings that exist, and each message of the proxy has
// its row in docs/diagnose.md.
package docs
