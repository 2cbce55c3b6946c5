package k8swatch

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Object is a ProxyKubeApi as a source knows it.
type Object struct {
	// ProxyKubeApi is the version in force: defaulted, accepted by admission.
	// When no version was ever accepted it holds what could be read, and
	// Invalid says why it is refused.
	ProxyKubeApi *v1.ProxyKubeApi
	// Invalid is why no version was ever accepted; empty otherwise
	// (Ready=False, InvalidSpec).
	Invalid string
	// UpdateRefused is why the newest version was refused while an earlier
	// one stays in force; empty otherwise (CONF-6).
	UpdateRefused string
}

// Store is what a source knows, answered from memory.
//
// A name that does not exist is an apierrors.IsNotFound error; any other
// error means that the read failed and nothing is known.
type Store interface {
	// Keys lists the objects.
	Keys() []Key
	// Object returns an object, or nil.
	Object(key Key) *Object
	Secret(namespace, name string) (*corev1.Secret, error)
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Service(namespace, name string) (*corev1.Service, error)
}

// The kinds of objects in a Change.
const (
	KindProxyKubeApi = "ProxyKubeApi"
	KindSecret       = "Secret"
	KindConfigMap    = "ConfigMap"
	KindService      = "Service"
)

// Change names an object that changed at its origin: a ProxyKubeApi, or a Secret,
// ConfigMap or Service that ProxyKubeApis may refer to. The object may be gone.
type Change struct {
	Kind, Namespace, Name string
}

// Source is a Store that follows its origin.
type Source interface {
	Store
	// Run follows the origin until ctx ends. It calls changed first when its
	// first full list is in memory, then after each change, never twice at a
	// time; changed does not block. Without a Change anything may have changed.
	// Run returns an error when the first full list can never be made.
	Run(ctx context.Context, changed func(...Change)) error
}
