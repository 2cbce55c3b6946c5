package directory

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// maxData is the apiserver's limit on the data of a Secret or ConfigMap.
const maxData = corev1.MaxSecretSize

// objectID names an object of a directory.
type objectID struct {
	kind string
	k8swatch.Key
}

func (id objectID) String() string { return id.kind + " " + id.Key.String() }

// manifest is one object as a file holds it.
type manifest struct {
	id objectID
	// value is the decoded object without the fields a server sets, nil when
	// it is refused: *v1.ProxyKubeApi, *corev1.Secret or *corev1.ConfigMap.
	value metav1.Object
	// refused is why, and readable what can be read of a refused ProxyKubeApi.
	refused  string
	readable *v1.ProxyKubeApi
}

// fileContent is what one file gives.
type fileContent struct {
	manifests []*manifest
	// nameless says why objects of the file cannot be matched with the objects that
	// it gave before: they have no usable name or namespace, or a kind that must be
	// meant for one of ours. While there is such an object, no object that the file
	// gave before counts as deleted.
	nameless []string
	// skipped counts the objects of other kinds.
	skipped map[string]int
}

// parseFile reads a file. An error means that the file as a whole says
// nothing; what is wrong with one object is in its manifest.
func parseFile(name string, text []byte, validator *admission.Validator) (*fileContent, error) {
	documents, err := parseDocuments(name, text)
	if err != nil {
		return nil, err
	}
	content := &fileContent{skipped: map[string]int{}}
	for i, document := range documents {
		if document == nil {
			continue // an empty document
		}
		object, ok := document.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("document %d: is no object", i+1)
		}
		if err := content.add(object, "", "", validator); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	return content, nil
}

// add adds an object, or those of a list. The items of a typed list may leave
// out their kind.
func (c *fileContent) add(object map[string]any, apiVersion, kind string, validator *admission.Validator) error {
	if object["apiVersion"] == nil && object["kind"] == nil && kind != "" {
		object["apiVersion"], object["kind"] = apiVersion, kind
	}
	apiVersion, _ = object["apiVersion"].(string)
	kind, _ = object["kind"].(string)
	if apiVersion == "" || kind == "" {
		return errors.New("has no apiVersion and kind")
	}
	switch groupKind := apiVersion + " " + kind; groupKind {
	case "v1 List":
		return c.addList(object, "", "", validator)
	case "v1 SecretList", "v1 ConfigMapList", "weebo.si.rs/v1 ProxyKubeApiList":
		return c.addList(object, apiVersion, strings.TrimSuffix(kind, "List"), validator)
	case "v1 Secret", "v1 ConfigMap", "weebo.si.rs/v1 ProxyKubeApi":
		c.addObject(object, kind, validator)
	default:
		if want := meant(apiVersion, kind); want != "" {
			c.nameless = append(c.nameless, mistaken(object, apiVersion, kind, want))
			return nil
		}
		c.skipped[text.OneLine(groupKind, k8swatch.MaxQuoted)]++
	}
	return nil
}

// meant is what an apiVersion and kind that are none of ours must be meant for:
// all of our group is, and what differs from one of ours in upper and lower
// case alone. "" is another kind.
func meant(apiVersion, kind string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	for _, known := range []string{k8swatch.KindProxyKubeApi, k8swatch.KindProxyKubeApi + "List"} {
		if strings.EqualFold(kind, known) {
			return "apiVersion " + v1.SchemeGroupVersion.String() + " and kind " + known
		}
	}
	if strings.EqualFold(group, v1.GroupName) {
		return "apiVersion " + v1.SchemeGroupVersion.String() + " and kind " + k8swatch.KindProxyKubeApi
	}
	for _, known := range []string{k8swatch.KindSecret, k8swatch.KindConfigMap, "List", k8swatch.KindSecret + "List", k8swatch.KindConfigMap + "List"} {
		if strings.EqualFold(apiVersion, "v1") && strings.EqualFold(kind, known) {
			return "apiVersion v1 and kind " + known
		}
	}
	return ""
}

// mistaken says which object has a wrong kind, and what is expected.
func mistaken(object map[string]any, apiVersion, kind, want string) string {
	text := fmt.Sprintf("an object has apiVersion %s and kind %s: expected %s", text.Quote(apiVersion, k8swatch.MaxQuoted), text.Quote(kind, k8swatch.MaxQuoted), want)
	if id, problem := identify(object, kind); problem == "" {
		return id.Key.String() + ": " + text
	}
	return text
}

func (c *fileContent) addList(list map[string]any, apiVersion, kind string, validator *admission.Validator) error {
	for field := range list {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, field) {
			return fmt.Errorf("a List has the unknown field %s", text.Quote(field, k8swatch.MaxQuoted))
		}
	}
	items, ok := list["items"].([]any)
	if !ok && list["items"] != nil {
		return errors.New("the items of a List are no list")
	}
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("item %d: is no object", i+1)
		}
		if err := c.add(object, apiVersion, kind, validator); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *fileContent) addObject(object map[string]any, kind string, validator *admission.Validator) {
	id, problem := identify(object, kind)
	if problem != "" {
		c.nameless = append(c.nameless, problem)
		return
	}
	m := &manifest{id: id}
	switch kind {
	case k8swatch.KindProxyKubeApi:
		m.decodeProxyKubeApi(object, validator)
	case k8swatch.KindSecret:
		m.decodeSecret(object)
	case k8swatch.KindConfigMap:
		m.decodeConfigMap(object)
	}
	c.manifests = append(c.manifests, m)
}

// identify reads the name and the namespace, and says what is wrong with them.
func identify(object map[string]any, kind string) (objectID, string) {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	id := objectID{kind, k8swatch.Key{Namespace: namespace, Name: name}}
	switch {
	case name == "":
		return id, fmt.Sprintf("a %s has no metadata.name", kind)
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return id, fmt.Sprintf("a %s has the metadata.name %s, which is no name", kind, text.Quote(name, k8swatch.MaxQuoted))
	case namespace == "":
		return id, fmt.Sprintf("%s %s has no metadata.namespace", kind, name)
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return id, fmt.Sprintf("%s %s has the metadata.namespace %s, which is no name", kind, name, text.Quote(namespace, k8swatch.MaxQuoted))
	}
	return id, ""
}

func (m *manifest) decodeProxyKubeApi(object map[string]any, validator *admission.Validator) {
	typed, err := validator.Admit(object)
	if err == nil {
		clearServerFields(typed)
		m.value = typed
		return
	}
	m.refused = "the object is refused"
	if refusal := (*admission.Refusal)(nil); errors.As(err, &refusal) {
		m.refused = refusal.Text()
	}
	m.readable, _ = validator.RevalidateRaw(object)
	m.readable.ObjectMeta = metav1.ObjectMeta{Namespace: m.id.Namespace, Name: m.id.Name}
	m.readable.Status = nil
}

func (m *manifest) decodeSecret(object map[string]any) {
	secret := &corev1.Secret{}
	if m.refused = cmp.Or(checkBase64(object, "data"), decodeStrict(object, secret)); m.refused != "" {
		return
	}
	// As the apiserver does: stringData wins, and is not kept.
	for key, value := range secret.StringData {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
	secret.Type = cmp.Or(secret.Type, corev1.SecretTypeOpaque)
	if m.refused = checkData(secret.Data, nil); m.refused != "" {
		return
	}
	if secret.Type == corev1.SecretTypeTLS {
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, found := secret.Data[key]; !found {
				m.refused = fmt.Sprintf("data has no %s, which the type %s needs", key, corev1.SecretTypeTLS)
				return
			}
		}
	}
	clearServerFields(secret)
	m.value = secret
}

func (m *manifest) decodeConfigMap(object map[string]any) {
	configMap := &corev1.ConfigMap{}
	if m.refused = cmp.Or(checkBase64(object, "binaryData"), decodeStrict(object, configMap)); m.refused != "" {
		return
	}
	if m.refused = checkData(configMap.BinaryData, configMap.Data); m.refused != "" {
		return
	}
	clearServerFields(configMap)
	m.value = configMap
}

// checkBase64 names the key that is wrong: the decoder would not.
func checkBase64(object map[string]any, field string) string {
	data, _ := object[field].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		encoded, ok := data[key].(string)
		if !ok && data[key] != nil {
			return fmt.Sprintf("%s[%s] is no text", field, text.Quote(key, k8swatch.MaxQuoted))
		}
		if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
			return fmt.Sprintf("%s[%s] is no base64", field, text.Quote(key, k8swatch.MaxQuoted))
		}
	}
	return ""
}

// decodeStrict decodes an object and says why it cannot, without a value: the
// decoder's own message on a number in stringData would repeat the number.
func decodeStrict(object map[string]any, into any) string {
	encoded, err := json.Marshal(object)
	if err != nil {
		return "the object is no JSON"
	}
	strict, err := kjson.UnmarshalStrict(encoded, into)
	if err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
			return fmt.Sprintf("the field %s has the wrong type", text.Quote(wrong.Field, k8swatch.MaxQuoted))
		}
		return "a field has the wrong type"
	}
	if len(strict) > 0 {
		return "unknown field " + fieldOf(strict[0])
	}
	return ""
}

// checkData holds keys and size to the apiserver's rules.
func checkData(bytes map[string][]byte, texts map[string]string) string {
	size := 0
	check := func(key string, length int) string {
		size += length
		if len(validation.IsConfigMapKey(key)) > 0 {
			return fmt.Sprintf("data has the key %s, which is no key", text.Quote(key, k8swatch.MaxQuoted))
		}
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(bytes)) {
		if problem := check(key, len(bytes[key])); problem != "" {
			return problem
		}
		if _, twice := texts[key]; twice {
			return fmt.Sprintf("the key %s is in data and in binaryData", text.Quote(key, k8swatch.MaxQuoted))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if problem := check(key, len(texts[key])); problem != "" {
			return problem
		}
	}
	if size > maxData {
		return fmt.Sprintf("data holds %d bytes, more than %d", size, maxData)
	}
	return ""
}

// clearServerFields takes out what only a server may say: such a file comes
// from `kubectl get -o yaml`.
func clearServerFields(object metav1.Object) {
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetGeneration(0)
	object.SetSelfLink("")
	object.SetCreationTimestamp(metav1.Time{})
	object.SetDeletionTimestamp(nil)
	object.SetDeletionGracePeriodSeconds(nil)
	object.SetManagedFields(nil)
	object.SetOwnerReferences(nil)
}
