package admission

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Fault is a broken rule, without the value that breaks it: an error of a rule
// may quote a whole object, and an object may hold a client secret.
type Fault struct {
	// Path is the field, empty where no single field is at fault.
	Path string
	// Text says what is wrong.
	Text string
}

func (f Fault) String() string {
	if f.Path == "" {
		return f.Text
	}
	return f.Path + ": " + f.Text
}

// Faults sorts broken rules by path and text: the rules run in the order of a
// map, and a status is written again whenever its text changes.
func Faults(errs field.ErrorList) []Fault {
	faults := make([]Fault, 0, len(errs))
	for _, err := range errs {
		fault := Fault{Path: err.Field, Text: faultText(err)}
		if fault.Path == (*field.Path)(nil).String() {
			fault.Path = ""
		}
		faults = append(faults, fault)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Text, b.Text))
	})
	return faults
}

func faultText(err *field.Error) string {
	if err.Detail != "" {
		return err.Detail
	}
	switch err.Type {
	case field.ErrorTypeRequired:
		return "is required"
	case field.ErrorTypeDuplicate:
		return "is given more than once"
	default:
		return strings.ToLower(err.Type.String())
	}
}
