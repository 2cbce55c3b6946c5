package admission

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// coerce prunes an object as the apiserver's decoder does
// (unstructuredSchemaCoercer) and says which fields it does not know.
func (v *Validator) coerce(object map[string]any) (unknown []error, err error) {
	meta, found, paths, err := objectmeta.GetObjectMetaWithOptions(object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	paths = append(paths, pruning.PruneWithOptions(object, v.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, v.structural)
	if found {
		if err := objectmeta.SetObjectMeta(object, meta); err != nil {
			return nil, err
		}
	}
	for _, path := range paths {
		unknown = append(unknown, fmt.Errorf("unknown field \"%s\"", path))
	}
	return unknown, nil
}

func checkType(object map[string]any) field.ErrorList {
	var errs field.ErrorList
	if object["kind"] != v1.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), object["kind"], "must be "+v1.Kind))
	}
	if want := v1.SchemeGroupVersion.String(); object["apiVersion"] != want {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), object["apiVersion"], "must be "+want))
	}
	return errs
}

func checkMetadata(object map[string]any) field.ErrorList {
	path := field.NewPath("metadata")
	meta := &metav1.ObjectMeta{}
	if fields, ok := object["metadata"].(map[string]any); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, meta); err != nil {
			return field.ErrorList{field.Invalid(path, "", err.Error())}
		}
	}
	return apivalidation.ValidateObjectMetaDeclaratively(context.Background(), operation.Create, meta, nil, true, apivalidation.NameIsDNSSubdomain, path, true)
}

func nameOf(object map[string]any) string {
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}
