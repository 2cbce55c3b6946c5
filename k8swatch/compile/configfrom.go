package compile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

// resolvedProvider is an oidc_provider with what its config_from says.
type resolvedProvider struct {
	// spec is nil unless the provider may be used now.
	spec     *v1.OidcProvider
	problems []problem
	stale    []string
}

// configState is carried over from one compilation to the next (CERT-7).
type configState struct {
	// source names the Secret. When the object names another Secret, the state
	// begins anew.
	source string
	// values are the last that could be used, nil for none.
	values configValues
}

// provider resolves the oidc_provider of an object that is validated against it.
func (b *builder) provider() resolvedProvider {
	var p *v1.OidcProvider
	if reference.UsesProvider(b.spec) {
		p = b.spec.AuthConfig.OidcProvider
	}
	if p != nil && p.Enabled && p.ConfigFrom != nil {
		return b.referredProvider(p)
	}
	// The Secret is not read for now, so that its withdrawal would be missed:
	// nothing of it is carried over.
	b.carried.config = configState{}
	switch {
	case !reference.UsesProvider(b.spec):
		return resolvedProvider{}
	case p == nil || !p.Enabled:
		return refusedProvider(invalid("spec.auth_config", "validate_against: OidcProvider needs oidc_provider.enabled: true"))
	}
	var problems []problem
	for _, f := range providerFaults(p) {
		problems = append(problems, f.problem())
	}
	if len(problems) > 0 {
		return refusedProvider(problems...)
	}
	return resolvedProvider{spec: p}
}

func refusedProvider(problems ...problem) resolvedProvider {
	return resolvedProvider{problems: problems}
}

// referredProvider reads config_from, or goes on with its last good values.
func (b *builder) referredProvider(p *v1.OidcProvider) resolvedProvider {
	state := &b.carried.config
	if p.ConfigFrom.Secret == nil {
		*state = configState{}
		return refusedProvider(invalid(reference.ConfigFromPath, "is required"))
	}
	r, refused := b.policy().Resolve(reference.ConfigFromPath, k8swatch.KindSecret, p.ConfigFrom.Secret.Name, p.ConfigFrom.Secret.Namespace, nil)
	if len(refused) > 0 {
		// references() has the problems.
		*state = configState{}
		return refusedProvider()
	}
	if state.source != r.String() {
		*state = configState{source: r.String()}
	}
	var problems []problem
	data, err := b.readAll(r)
	var protected errProtected
	switch {
	case errors.As(err, &protected):
		*state = configState{}
		return refusedProvider(invalid(reference.ConfigFromPath+".name", reference.ProtectedText))
	case err != nil:
		problems = []problem{{reason: k8swatch.ReasonReferenceNotFound, path: reference.ConfigFromPath, text: err.Error()}}
	default:
		values := configValuesOf(data)
		faults := values.faults(p)
		if len(faults) == 0 {
			state.values = values
			return resolvedProvider{spec: values.over(p)}
		}
		problems, err = faultProblems(r, faults)
	}
	if state.values != nil && len(state.values.faults(p)) == 0 {
		return resolvedProvider{spec: state.values.over(p), stale: []string{err.Error()}}
	}
	return refusedProvider(problems...)
}

// configValues are the values of a Secret of config_from by field.
type configValues map[string]string

// configFields are the fields that config_from may give; nothing else is read
// (API-7).
var configFields = []string{"issuer_url", "client_id", "client_secret", "audience", "extra_scope", "certificate_authority"}

// configValuesOf leaves out the line break that most editors put at the end of
// a file.
func configValuesOf(data map[string][]byte) configValues {
	values := configValues{}
	for _, field := range configFields {
		if data, ok := data[field]; ok {
			value := string(data)
			if line, ok := strings.CutSuffix(value, "\n"); ok {
				value = strings.TrimSuffix(line, "\r")
			}
			values[field] = value
		}
	}
	return values
}

// over returns a copy of an oidc_provider with these values in place of its own.
func (v configValues) over(p *v1.OidcProvider) *v1.OidcProvider {
	resolved := *p
	set := func(field string, to func(string)) {
		if value, ok := v[field]; ok {
			to(value)
		}
	}
	set("issuer_url", func(value string) { resolved.IssuerURL = value })
	set("client_id", func(value string) { resolved.ClientID = value })
	set("client_secret", func(value string) { resolved.ClientSecret = &value })
	set("audience", func(value string) { resolved.Audience = value })
	set("extra_scope", func(value string) { resolved.ExtraScope = value })
	set("certificate_authority", func(value string) { resolved.CertificateAuthority = &value })
	return &resolved
}

// configFault is a value that cannot be used.
type configFault struct {
	valueFault
	// inSecret says that the Secret is to be changed, not the object.
	inSecret bool
}

func (v configValues) faults(p *v1.OidcProvider) []configFault {
	var faults []configFault
	for _, f := range providerFaults(v.over(p)) {
		_, there := v[f.field]
		if !there && errors.Is(f.err, errEmpty) {
			there, f.err = true, errNoKey
		}
		faults = append(faults, configFault{f, there})
	}
	return faults
}

var errNoKey = errors.New("is missing, and the field is empty")

// faultProblems makes a problem of each fault, and one error of all faults, for
// the notice that the Secret is stale. Neither repeats a value.
func faultProblems(r reference.Reference, faults []configFault) ([]problem, error) {
	var problems []problem
	var texts []string
	for _, f := range faults {
		own := f.problem()
		text := own.message()
		if f.inSecret {
			text = fmt.Sprintf("key %q %v", f.field, f.err)
			own = problem{reason: k8swatch.ReasonReferenceNotFound, path: reference.ConfigFromPath, text: errReference{r, text}.Error()}
		}
		problems, texts = append(problems, own), append(texts, text)
	}
	return problems, errReference{r, strings.Join(texts, "; ")}
}
