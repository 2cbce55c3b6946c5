package k8swatch

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// reference is one key of a Secret or ConfigMap that an object names.
type reference struct {
	path                       string
	kind, namespace, name, key string
}

const (
	secretKind    = "Secret"
	configMapKind = "ConfigMap"
)

func (r reference) String() string { return r.kind + " " + r.namespace + "/" + r.name }

// eachReference calls visit with each reference of a spec, the ones this
// version does not read included. The key is nil where all of a Secret is meant.
func eachReference(spec *v1.ProxyKubeApiSpec, visit func(path, kind, name string, namespace, key *string)) {
	source := func(path string, s *v1.CertSource) {
		if s == nil {
			return
		}
		if r := s.Secret; r != nil {
			visit(path+".Secret", secretKind, r.Name, r.Namespace, &r.Key)
		}
		if r := s.ConfigMap; r != nil {
			visit(path+".ConfigMap", configMapKind, r.Name, r.Namespace, &r.Key)
		}
	}
	source("spec.cert", spec.Cert)
	if c := spec.ClientCert; c != nil {
		source("spec.client_cert.cert", &c.Cert)
		source("spec.client_cert.key", &c.Key)
	}
	if a := spec.AuthConfig; a != nil && a.OidcProvider != nil && a.OidcProvider.ConfigFrom != nil {
		if s := a.OidcProvider.ConfigFrom.Secret; s != nil {
			visit(configFromPath, secretKind, s.Name, s.Namespace, nil)
		}
	}
	for i := range spec.VirtualAPIs {
		source(fmt.Sprintf("spec.virtual_apis[%d].list_fallback_token", i), spec.VirtualAPIs[i].ListFallbackToken)
	}
}

// references checks where the references of the object point (API-4, API-5).
func (b *builder) references() []problem {
	var problems []problem
	eachReference(b.spec, func(path, kind, name string, namespace, key *string) {
		_, found := b.policy().resolve(path, kind, name, namespace, key)
		problems = append(problems, found...)
	})
	return problems
}

func (b *builder) resolve(path, kind string, ref *v1.KeyReference) (reference, []problem) {
	return b.policy().resolve(path, kind, ref.Name, ref.Namespace, &ref.Key)
}

func (b *builder) policy() referencePolicy {
	return referencePolicy{namespace: b.key.Namespace, opened: b.options.ReferenceNamespaces}
}

// referencePolicy says where the references of an object may point: nowhere but
// where its author could read, and never at what the product keeps for itself.
type referencePolicy struct {
	// namespace is the object's own.
	namespace string
	// opened are the namespaces the proxy admin opened to all objects.
	opened []string
}

// resolve returns what a reference names. It may be read only when there is no
// problem.
func (p referencePolicy) resolve(path, kind, name string, namespace, key *string) (reference, []problem) {
	r := reference{path: path, kind: kind, namespace: orDefault(namespace, p.namespace), name: name}
	var problems []problem
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		problems = append(problems, invalid(path+".name", "must be the name of a "+kind))
	}
	if r.namespace != p.namespace && !slices.Contains(p.opened, r.namespace) {
		problems = append(problems, invalid(path+".namespace", fmt.Sprintf(
			"must be the namespace of the object; the proxy admin has not opened %s to references (reference_namespaces)", quoted(r.namespace))))
	}
	if kind == secretKind && protectedSecretName(name) {
		problems = append(problems, invalid(path+".name", protectedText))
	}
	if key != nil {
		if r.key = *key; r.key == "" {
			problems = append(problems, invalid(path+".key", "is required"))
		}
	}
	return r, problems
}

const protectedText = "names a Secret of the proxy itself, which no object can refer to"

// errProtected says that a Secret belongs to the product (API-5). It withdraws
// what was read from it before.
type errProtected struct{ reference }

func (e errProtected) Error() string { return e.String() + " " + protectedText }

// errReference is a reference that cannot be used now; text says why without
// repeating anything of the contents.
type errReference struct {
	reference
	text string
}

func (e errReference) Error() string {
	return staleText(e.kind, e.namespace, e.name, e.text)
}

// read returns what a reference holds, or an errProtected or errReference.
func (b *builder) read(r reference) ([]byte, error) {
	data, err := b.readAll(r)
	if err != nil {
		return nil, err
	}
	value, ok := data[r.key]
	if !ok {
		return nil, errReference{r, "has no key " + quoted(r.key)}
	}
	return value, nil
}

// readAll returns all that the object of a reference holds, or an errProtected
// or errReference.
func (b *builder) readAll(r reference) (map[string][]byte, error) {
	data, meta, err := b.fetch(r)
	if err != nil {
		return nil, errReference{r, readFault(err)}
	}
	if r.kind == secretKind && meta.Labels[ManagedByLabel] == ManagedByValue {
		return nil, errProtected{r}
	}
	return data, nil
}

func (b *builder) fetch(r reference) (map[string][]byte, *metav1.ObjectMeta, error) {
	if r.kind == secretKind {
		secret, err := b.store.Secret(r.namespace, r.name)
		if err != nil {
			return nil, nil, err
		}
		return secret.Data, &secret.ObjectMeta, nil
	}
	configMap, err := b.store.ConfigMap(r.namespace, r.name)
	if err != nil {
		return nil, nil, err
	}
	return configMapData(configMap), &configMap.ObjectMeta, nil
}

func configMapData(c *corev1.ConfigMap) map[string][]byte {
	data := make(map[string][]byte, len(c.Data)+len(c.BinaryData))
	for k, v := range c.BinaryData {
		data[k] = v
	}
	for k, v := range c.Data {
		data[k] = []byte(v)
	}
	return data
}

// staleText names an object, the verb that was tried on it and what went wrong.
func staleText(kind, namespace, name, fault string) string {
	return fmt.Sprintf("get %s %s/%s: %s", kind, namespace, name, fault)
}

// readFault says why an object could not be read. The text of the error itself
// is not repeated: it names the service account of the proxy, and tenants read
// the status it would end up in.
func readFault(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return "it does not exist"
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsUnauthorized(err):
		return "unauthorized"
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "timed out"
	default:
		return "the read failed"
	}
}
