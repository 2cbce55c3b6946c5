package admission

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// maxReasons is how many reasons Text gives before it counts the rest.
	maxReasons = 8
	// maxReason is the length of one of them, in bytes.
	maxReason = 400
)

// Refusal is why Admit refuses an object; one of its lists is not empty.
type Refusal struct {
	// Name is the object's name, if it has one.
	Name string
	// Malformed says that the object cannot be decoded.
	Malformed error
	// Strict are fields that the CRD does not know.
	Strict []error
	// Invalid are broken rules.
	Invalid field.ErrorList
}

// Error is what the apiserver answers to the author. It can hold values.
func (r *Refusal) Error() string { return r.Status().Error() }

// Status is the answer of the apiserver. It can hold values.
func (r *Refusal) Status() *apierrors.StatusError {
	if len(r.Invalid) > 0 {
		return apierrors.NewInvalid(v1.SchemeGroupVersionKind.GroupKind(), r.Name, r.Invalid)
	}
	err := r.Malformed
	if err == nil {
		err = runtime.NewStrictDecodingError(r.Strict)
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", v1.Kind, v1.Version, v1.Kind, err))
}

// Text says the same without any value of the object, at a bounded length, for
// logs and for the status.
func (r *Refusal) Text() string {
	switch {
	case len(r.Invalid) > 0:
		return Text(r.Invalid)
	case len(r.Strict) > 0:
		reasons := make([]string, 0, len(r.Strict))
		for _, err := range r.Strict {
			reasons = append(reasons, err.Error())
		}
		return join(reasons)
	default:
		// The decoder's text can hold a value.
		return "the object cannot be decoded: a field has the wrong type"
	}
}

// Text is a list of broken rules without the values that break them, at a
// bounded length.
func Text(errs field.ErrorList) string {
	reasons := make([]string, 0, len(errs))
	for _, err := range errs {
		if err.Detail == notChecked {
			reasons = append(reasons, "other rules were not checked")
			continue
		}
		reason := err.Type.String()
		if err.Detail != "" {
			reason += ": " + err.Detail
		}
		if err.Field != "" && err.Field != "<nil>" {
			reason = err.Field + ": " + reason
		}
		reasons = append(reasons, reason)
	}
	return join(reasons)
}

func join(reasons []string) string {
	rest := 0
	if len(reasons) > maxReasons {
		rest = len(reasons) - maxReasons
		reasons = reasons[:maxReasons]
	}
	short := make([]string, len(reasons))
	for i, reason := range reasons {
		short[i] = printable(reason)
	}
	all := strings.Join(short, "; ")
	if rest > 0 {
		all += fmt.Sprintf("; and %d more", rest)
	}
	return all
}

// printable cuts a reason and takes its control characters out: the author chooses
// the names of fields.
func printable(reason string) string {
	reason = text.Mask(reason)
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return reason
}
