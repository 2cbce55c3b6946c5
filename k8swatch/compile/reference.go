package compile

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

// references refuses references to what the author of the object must not read
// (API-4, API-5).
func (b *builder) references() []problem {
	var problems []problem
	reference.Each(b.spec, func(path, kind, name string, namespace, key *string) {
		_, faults := b.policy().Resolve(path, kind, name, namespace, key)
		problems = append(problems, fromFaults(faults)...)
	})
	return problems
}

func (b *builder) resolve(path, kind string, ref *v1.KeyReference) (reference.Reference, []problem) {
	r, faults := b.policy().Resolve(path, kind, ref.Name, ref.Namespace, &ref.Key)
	return r, fromFaults(faults)
}

func (b *builder) policy() reference.Policy {
	return reference.Policy{Namespace: b.key.Namespace, Opened: b.options.ReferenceNamespaces}
}

// errProtected says that a Secret belongs to the proxy itself (API-5). The last
// good value that was read from it is withdrawn.
type errProtected struct{ reference.Reference }

func (e errProtected) Error() string { return e.String() + " " + reference.ProtectedText }

// errReference says why a reference cannot be used now, without repeating
// anything of the contents.
type errReference struct {
	reference.Reference
	text string
}

func (e errReference) Error() string {
	return reference.GetFailed(e.Kind, e.Namespace, e.Name, e.text)
}

// read returns the value that a reference names. Its error is an errProtected or
// an errReference.
func (b *builder) read(r reference.Reference) ([]byte, error) {
	data, err := b.readAll(r)
	if err != nil {
		return nil, err
	}
	value, ok := data[r.Key]
	if !ok {
		return nil, errReference{r, "has no key " + text.Quote(r.Key, k8swatch.MaxQuoted)}
	}
	return value, nil
}

// readAll returns all values of the Secret or ConfigMap that a reference names.
// Its error is an errProtected or an errReference.
func (b *builder) readAll(r reference.Reference) (map[string][]byte, error) {
	data, meta, err := b.fetch(r)
	if err != nil {
		return nil, errReference{r, reference.Fault(err)}
	}
	if r.Kind == k8swatch.KindSecret && meta.Labels[k8swatch.ManagedByLabel] == k8swatch.ManagedByValue {
		return nil, errProtected{r}
	}
	return data, nil
}

func (b *builder) fetch(r reference.Reference) (map[string][]byte, *metav1.ObjectMeta, error) {
	if r.Kind == k8swatch.KindSecret {
		secret, err := b.store.Secret(r.Namespace, r.Name)
		if err != nil {
			return nil, nil, err
		}
		return secret.Data, &secret.ObjectMeta, nil
	}
	configMap, err := b.store.ConfigMap(r.Namespace, r.Name)
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
