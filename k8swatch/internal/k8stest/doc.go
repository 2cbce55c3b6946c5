// Package k8stest has the objects, certificates and the store in memory that the
// tests of the packages under k8swatch share.
package k8stest
