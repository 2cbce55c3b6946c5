// Package examples holds the test that what the documentation shows works: each
// Caddyfile of Caddyfile.examples and each fenced snippet of README.md and docs
// is adapted and validated by the program itself, and each ProxyKubeApi in them
// passes admission.
package examples
