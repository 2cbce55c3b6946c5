// Package charts holds the tests of the Helm charts. What helm renders for more
// than fifty sets of values (testdata/table) is decoded strictly into the types
// of the Kubernetes API, judged by a real apiserver and held to CHART-1 to
// CHART-3; the Caddyfiles are adapted and validated by the program itself; and
// the apiserver takes releases through install, upgrade and uninstall.
package charts
