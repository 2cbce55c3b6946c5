// Package conformance runs Kubernetes' own conformance tests directly and
// through the proxy, and compares (harness/conformance). It needs a node and
// minutes to hours: make test-long-conformance, make conformance.
package conformance
