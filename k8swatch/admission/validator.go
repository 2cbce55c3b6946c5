package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// notChecked is the apiserver's own text.
const notChecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// Validator runs the rules of the CRD. It is immutable and safe for concurrent
// use; compiling its CEL rules takes tens of milliseconds, so make one and
// keep it, or use Default.
type Validator struct {
	structural *schema.Structural
	rules      *cel.Validator
	patterns   map[string]*regexp.Regexp
	// admit holds the whole schema; stored lacks the enum on mode.
	admit, stored validation.SchemaValidator
}

// Default returns the one Validator of this process, made at the first call.
var Default = sync.OnceValues(New)

// New compiles the CRD. An error means that this program is broken.
func New() (*Validator, error) {
	props, err := schemaProps(v1.CRD)
	if err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("reading the structural schema: %w", err)
	}
	admit, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema: %w", err)
	}
	open := props.DeepCopy()
	if err := dropModeEnum(open); err != nil {
		return nil, err
	}
	stored, _, err := validation.NewSchemaValidator(open)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema of the re-check: %w", err)
	}
	patterns := map[string]*regexp.Regexp{}
	patternsOf(structural, patterns)
	return &Validator{
		structural: structural,
		patterns:   patterns,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
		admit:      admit,
		stored:     stored,
	}, nil
}

// schemaProps is the schema of the CRD's one version.
func schemaProps(text string) (*apiextensions.JSONSchemaProps, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(text), &crd); err != nil {
		return nil, fmt.Errorf("reading the CRD: %w", err)
	}
	if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Name != v1.Version || crd.Spec.Versions[0].Schema == nil {
		return nil, fmt.Errorf("reading the CRD: it has no schema for version %s alone", v1.Version)
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, fmt.Errorf("converting the schema: %w", err)
	}
	return props, nil
}

// dropModeEnum lets a mode of a later version through: it is not the object
// that is wrong then but this replica that is old (UpstreamModeUnknown).
func dropModeEnum(root *apiextensions.JSONSchemaProps) error {
	spec, found := root.Properties["spec"]
	upstream, found2 := spec.Properties["upstream_auth"]
	mode, found3 := upstream.Properties["mode"]
	if !found || !found2 || !found3 || len(mode.Enum) == 0 {
		return fmt.Errorf("reading the CRD: spec.upstream_auth.mode has no enum")
	}
	mode.Enum = nil
	upstream.Properties["mode"] = mode
	return nil
}

// Admit decides on a new object as the apiserver does for a create with
// fieldValidation=Strict: unknown fields, defaults, metadata, schema, CEL. It
// returns the defaulted object without its status, or a *Refusal.
//
// raw holds JSON values as k8s.io/apimachinery/pkg/util/json decodes them
// (int64 and float64 numbers); it is not changed.
func (v *Validator) Admit(raw map[string]any) (*v1.ProxyKubeApi, error) {
	object := runtime.DeepCopyJSON(raw)
	if errs := checkType(object); len(errs) > 0 {
		return nil, &Refusal{Name: nameOf(object), Invalid: errs}
	}
	unknown, err := v.coerce(object)
	if err != nil {
		return nil, &Refusal{Name: nameOf(object), Malformed: err}
	}
	if len(unknown) > 0 {
		return nil, &Refusal{Name: nameOf(object), Strict: unknown}
	}
	defaulting.Default(object, v.structural)
	delete(object, "status")
	if errs := v.check(object, v.admit, true); len(errs) > 0 {
		return nil, &Refusal{Name: nameOf(object), Invalid: errs}
	}
	typed := &v1.ProxyKubeApi{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		return nil, &Refusal{Name: nameOf(object), Malformed: err}
	}
	return typed, nil
}

// Revalidate runs all rules on an object that an apiserver stored, except the
// enum on spec.upstream_auth.mode and the rules on metadata (API-3). Defaults
// count, though obj is not changed.
func (v *Validator) Revalidate(obj *v1.ProxyKubeApi) field.ErrorList {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("converting the object: %w", err))}
	}
	delete(object, "status")
	defaulting.PruneNonNullableNullsWithoutDefaults(object, v.structural)
	defaulting.Default(object, v.structural)
	return v.check(object, v.stored, false)
}

// RevalidateRaw is Revalidate for an object that may not even have the shape of the
// types. It returns what could be read, defaulted: never nil, and with an
// empty spec when that cannot be read. Unknown fields are dropped, as the
// apiserver drops them; the status is kept where it can be read. raw is not
// changed.
func (v *Validator) RevalidateRaw(raw map[string]any) (*v1.ProxyKubeApi, field.ErrorList) {
	object := runtime.DeepCopyJSON(raw)
	if _, err := v.coerce(object); err != nil {
		delete(object, "metadata")
	}
	defaulting.Default(object, v.structural)
	typed := readWhatCan(object)
	delete(object, "status")
	return typed, v.check(object, v.stored, false)
}

// readWhatCan leaves out the parts of an object that cannot be read, so that a bad
// spec does not hide the name.
func readWhatCan(object map[string]any) *v1.ProxyKubeApi {
	readable := maps.Clone(object)
	maps.DeleteFunc(readable, func(name string, part any) bool {
		return runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{name: part}, new(v1.ProxyKubeApi)) != nil
	})
	typed := new(v1.ProxyKubeApi)
	// Each part alone was read.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(readable, typed)
	return typed
}

// check runs the rules in the order of the apiserver's create strategy. Lists
// of an object that is refused may come back shortened.
func (v *Validator) check(object map[string]any, openapi validation.SchemaValidator, metadata bool) field.ErrorList {
	var errs field.ErrorList
	if metadata {
		errs = append(errs, checkMetadata(object)...)
	}
	trimmer := trimmer{patterns: v.patterns}
	trimmer.trim(object, v.structural, nil)
	errs = append(errs, validation.ValidateCustomResource(nil, object, openapi)...)
	trimmer.restore(errs)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, v.structural, object)...)
	if blocksRules(errs) {
		errs = append(errs, field.Invalid(nil, nil, notChecked))
	} else {
		broken, _ := v.rules.Validate(context.Background(), nil, v.structural, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
	}
	// The order within an object is that of a Go map. A condition's message
	// must not change with it.
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a.Field, b.Field))
	})
	return errs
}

// last sorts what is said of no field behind the rest.
func last(err *field.Error) int {
	if err.Detail == notChecked {
		return 1
	}
	return 0
}

// blocksRules says whether CEL must not run, since its cost is bounded only
// for objects within the bounds of the schema (the apiserver's hasBlockingErr).
func blocksRules(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}
