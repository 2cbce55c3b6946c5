// Package hub starts the Kubernetes API that the product reads its objects
// from: a real apiserver with the CRD, and the ServiceAccount with exactly the
// rights that the chart grants.
package hub
