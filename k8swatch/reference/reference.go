package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// ConfigFromPath is the path of the Secret of config_from.
const ConfigFromPath = "spec.auth_config.oidc_provider.config_from.Secret"

// UsesProvider says whether an object is validated against its oidc_provider.
func UsesProvider(spec *v1.ProxyKubeApiSpec) bool {
	return spec.ValidateAgainstOrDefault() == v1.ValidateOidcProvider && !spec.AuthConfig.DisableValidation
}

// Reference is one key of a Secret or ConfigMap that an object names.
type Reference struct {
	Kind, Namespace, Name, Key string
}

func (r Reference) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// Each calls visit with each reference of a spec, the ones this
// version does not read included. The key is nil where all of a Secret is meant.
func Each(spec *v1.ProxyKubeApiSpec, visit func(path, kind, name string, namespace, key *string)) {
	source := func(path string, s *v1.CertSource) {
		if s == nil {
			return
		}
		if r := s.Secret; r != nil {
			visit(path+".Secret", k8swatch.KindSecret, r.Name, r.Namespace, &r.Key)
		}
		if r := s.ConfigMap; r != nil {
			visit(path+".ConfigMap", k8swatch.KindConfigMap, r.Name, r.Namespace, &r.Key)
		}
	}
	source("spec.cert", spec.Cert)
	if c := spec.ClientCert; c != nil {
		source("spec.client_cert.cert", &c.Cert)
		source("spec.client_cert.key", &c.Key)
	}
	if a := spec.AuthConfig; a != nil && a.OidcProvider != nil && a.OidcProvider.ConfigFrom != nil {
		if s := a.OidcProvider.ConfigFrom.Secret; s != nil {
			visit(ConfigFromPath, k8swatch.KindSecret, s.Name, s.Namespace, nil)
		}
	}
	for i := range spec.VirtualAPIs {
		source(fmt.Sprintf("spec.virtual_apis[%d].list_fallback_token", i), spec.VirtualAPIs[i].ListFallbackToken)
	}
}

// Policy says where the references of an object may point: nowhere but
// where its author could read, and never at what the product keeps for itself.
type Policy struct {
	// Namespace is the object's own.
	Namespace string
	// Opened are the namespaces the proxy admin opened to all objects.
	Opened []string
}

// Resolve returns what a reference names. It may be read only when there is no
// problem.
func (p Policy) Resolve(path, kind, name string, namespace, key *string) (Reference, []admission.Fault) {
	r := Reference{Kind: kind, Namespace: cmp.Or(ptr.Deref(namespace, ""), p.Namespace), Name: name}
	var faults []admission.Fault
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		faults = append(faults, fault(path+".name", "must be the name of a "+kind))
	}
	if r.Namespace != p.Namespace && !slices.Contains(p.Opened, r.Namespace) {
		faults = append(faults, fault(path+".namespace", fmt.Sprintf(
			"must be the namespace of the object; the proxy admin has not opened %s to references (reference_namespaces)", text.Quote(r.Namespace, k8swatch.MaxQuoted))))
	}
	if kind == k8swatch.KindSecret && k8swatch.ProtectedSecretName(name) {
		faults = append(faults, fault(path+".name", ProtectedText))
	}
	if key != nil {
		if r.Key = *key; r.Key == "" {
			faults = append(faults, fault(path+".key", "is required"))
		}
	}
	return r, faults
}

func fault(path, says string) admission.Fault { return admission.Fault{Path: path, Text: says} }

// ProtectedText refuses a reference to a Secret of the proxy itself.
const ProtectedText = "names a Secret of the proxy itself, which no object can refer to"

// GetFailed names an object, the verb that was tried on it and what went wrong.
func GetFailed(kind, namespace, name, fault string) string {
	return fmt.Sprintf("get %s %s/%s: %s", kind, namespace, name, fault)
}

// Fault says why an object could not be read. The text of the error itself
// is not repeated: it names the service account of the proxy, and tenants read
// the status it would end up in.
func Fault(err error) string {
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

// IsRead says whether a compilation reads the reference at path. What nothing is
// made of costs the hub no request.
func IsRead(path string, spec *v1.ProxyKubeApiSpec) bool {
	return strings.HasPrefix(path, "spec.cert.") ||
		strings.HasPrefix(path, "spec.client_cert.") && spec.ModeOrDefault() == v1.ModePassthrough ||
		path == ConfigFromPath && UsesProvider(spec)
}
