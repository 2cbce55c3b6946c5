// Package docs holds the test that what the documentation shows works: each
// Caddyfile of Caddyfile.examples and each fenced snippet of README.md and docs
// is adapted and validated by the program itself; each ProxyKubeApi in them and
// in docs/idp passes admission and the compiler, and the manifests of docs/idp
// make of claims, as the vendors document them, what their pages say.
package docs
