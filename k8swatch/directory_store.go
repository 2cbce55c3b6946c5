package k8swatch

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var errNotListed = errors.New("the directory has not been read yet")

// Keys lists the objects, sorted.
func (d *Directory) Keys() []Key {
	if objects := d.current.Load(); objects != nil {
		return slices.Clone(objects.keys)
	}
	return nil
}

// Object returns an object, or nil.
func (d *Directory) Object(key Key) *Object {
	if objects := d.current.Load(); objects != nil {
		return objects.objects[key]
	}
	return nil
}

// Secret returns a Secret of the directory.
func (d *Directory) Secret(namespace, name string) (*corev1.Secret, error) {
	objects := d.current.Load()
	if objects == nil {
		return nil, errNotListed
	}
	if secret := objects.secrets[Key{Namespace: namespace, Name: name}]; secret != nil {
		return secret, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

// ConfigMap returns a ConfigMap of the directory.
func (d *Directory) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	objects := d.current.Load()
	if objects == nil {
		return nil, errNotListed
	}
	if configMap := objects.configMaps[Key{Namespace: namespace, Name: name}]; configMap != nil {
		return configMap, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

// Service finds none: there is no cluster around a directory, so that a
// KubernetesService is ServiceNotFound (CONF-6).
func (d *Directory) Service(_, name string) (*corev1.Service, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("services"), name)
}
