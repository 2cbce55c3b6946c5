// Package kubernetes holds the tests of validate_against: Kubernetes
// (AUTH-8): a real apiserver says who the bearers of its own tokens are, a raw
// server stands in for one that answers badly or not at all, and the audit log
// of the apiserver tells how often it was asked, and who arrived.
package kubernetes
