// Package charts holds the tests of the Helm charts: what helm renders for
// several sets of values is decoded strictly into the types of the Kubernetes
// API and held to CHART-1 and CHART-2, its Caddyfile is adapted and validated by
// the program itself, and a real apiserver takes releases through install,
// upgrade and uninstall.
package charts
