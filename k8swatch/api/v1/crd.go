package v1

import _ "embed"

// CRD is the CustomResourceDefinition of ProxyKubeApi as YAML, generated from
// the types of this package.
//
//go:embed weebo.si.rs_proxykubeapis.yaml
var CRD string
