// Package v1 holds the ProxyKubeApi types of the API group weebo.si.rs/v1 and
// the CustomResourceDefinition generated from them.
//
// The spec is snake_case and its unions are objects with exactly one
// PascalCase key; the status is camelCase. Bounds, defaults and CEL rules stand
// beside the fields as controller-gen markers. Markers that hold two single
// quotes in a row stand in a comment of their own above the doc comment, where
// gofmt does not make one quotation mark of them.
//
// After a change of the types:
//
//	go generate ./k8swatch/api/v1        # writes deepcopy and the CRD
//	go run ./k8swatch/api/v1/gen -check  # fails when they are out of date
//
// A cluster author is trusted with their own cluster and nothing more. This package
// decides only on the shape of an object. Package compile has the rules that need
// the proxy's configuration or other objects, and package admission runs the rules
// of the CRD where no apiserver does.
//
// +kubebuilder:object:generate=true
// +groupName=weebo.si.rs
package v1

//go:generate go run ./gen
