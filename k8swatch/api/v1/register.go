package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the API.
const (
	GroupName = "weebo.si.rs"
	Version   = "v1"
	Kind      = "ProxyKubeApi"
	Resource  = "proxykubeapis"
)

// SchemeGroupVersion is weebo.si.rs/v1.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: Version}

// SchemeGroupVersionKind is the kind ProxyKubeApi.
var SchemeGroupVersionKind = SchemeGroupVersion.WithKind(Kind)

// SchemeGroupVersionResource is the resource proxykubeapis.
var SchemeGroupVersionResource = SchemeGroupVersion.WithResource(Resource)

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &ProxyKubeApi{}, &ProxyKubeApiList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
