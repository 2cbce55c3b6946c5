// Package admission gives the objects of k8swatch/admission/testdata, and
// thousands that are changed in one place, to a real kube-apiserver with the
// project's CRD and to the validator that runs the CRD in-process, and wants
// the same verdict in the same words, and the same defaults (API-1, API-3).
package admission
