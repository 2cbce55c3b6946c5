package directory

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

var errNotListed = errors.New("the directory has not been read yet")

// Keys lists the objects, sorted.
func (d *Source) Keys() []k8swatch.Key {
	if objects := d.current.Load(); objects != nil {
		return slices.Clone(objects.keys)
	}
	return nil
}

// Object returns an object, or nil.
func (d *Source) Object(key k8swatch.Key) *k8swatch.Object {
	if objects := d.current.Load(); objects != nil {
		return objects.objects[key]
	}
	return nil
}

// Secret returns a Secret of the directory.
func (d *Source) Secret(namespace, name string) (*corev1.Secret, error) {
	objects := d.current.Load()
	if objects == nil {
		return nil, errNotListed
	}
	if secret := objects.secrets[k8swatch.Key{Namespace: namespace, Name: name}]; secret != nil {
		return secret, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

// ConfigMap returns a ConfigMap of the directory.
func (d *Source) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	objects := d.current.Load()
	if objects == nil {
		return nil, errNotListed
	}
	if configMap := objects.configMaps[k8swatch.Key{Namespace: namespace, Name: name}]; configMap != nil {
		return configMap, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

// Service finds none: there is no cluster around a directory, so that a
// KubernetesService is ServiceNotFound (CONF-6).
func (d *Source) Service(_, name string) (*corev1.Service, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("services"), name)
}
