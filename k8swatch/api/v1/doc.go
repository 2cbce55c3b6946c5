// Package v1 holds the ProxyKubeApi types of the API group weebo.si.rs/v1.
//
// The spec is snake_case and its unions are objects with exactly one
// PascalCase key; the status is camelCase. Bounds, defaults and CEL rules stand
// beside the fields as controller-gen markers, and the CustomResourceDefinition
// is generated from them.
//
// +kubebuilder:object:generate=true
// +groupName=weebo.si.rs
package v1
