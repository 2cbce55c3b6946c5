package k8swatch

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// problem is one thing that stops a cluster.
type problem struct {
	reason string
	// path is the field at fault, empty where no single field is.
	path string
	text string
}

func (p problem) message() string {
	if p.path == "" {
		return p.text
	}
	return p.path + ": " + p.text
}

func invalid(path, text string) problem {
	return problem{reason: ReasonInvalidSpec, path: path, text: text}
}

// unsupported refuses a field that restricts or authenticates and is not built
// yet; more says what is meant where the path alone does not (API-8).
func unsupported(path, more string) problem {
	text := path + " is not supported by this version"
	if more != "" {
		text += ": " + more
	}
	return problem{reason: ReasonInvalidSpec, text: text}
}

// fromFieldErrors leaves the refused values out: an error may quote a whole
// object, and an object may hold a client secret. They are sorted, since the
// rules run in the order of a map and a status is written when its text changes.
func fromFieldErrors(errs field.ErrorList) []problem {
	problems := make([]problem, 0, len(errs))
	for _, err := range errs {
		path := err.Field
		if path == noField {
			path = ""
		}
		problems = append(problems, invalid(path, fieldErrorText(err)))
	}
	slices.SortStableFunc(problems, func(a, b problem) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.text, b.text))
	})
	return problems
}

// noField is what a field.Error names that is about no field.
var noField = (*field.Path)(nil).String()

func fieldErrorText(err *field.Error) string {
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

// withoutRepeats drops from more what concerns a field that first already
// names: the rules of admission speak before the compiler's own, which exist
// for objects that are older than the rules.
func withoutRepeats(first, more []problem) []problem {
	seen := map[string]bool{}
	for _, p := range first {
		seen[p.path] = p.path != ""
	}
	kept := first[:len(first):len(first)]
	for _, p := range more {
		if !seen[p.path] {
			kept = append(kept, p)
		}
	}
	return kept
}

// readiness is the Ready condition: the first reason that applies, with all
// that is to be said under it.
func readiness(problems []problem) Condition {
	if len(problems) == 0 {
		return Condition{Type: ConditionReady, Status: StatusTrue, Reason: ReasonServing, Message: "the cluster is served"}
	}
	first := problems[0].reason
	var texts []string
	for _, p := range problems {
		if p.reason == first {
			texts = append(texts, p.message())
		}
	}
	status := StatusFalse
	if first == ReasonUpstreamModeUnknown {
		status = StatusUnknown
	}
	return Condition{Type: ConditionReady, Status: status, Reason: first, Message: bounded(strings.Join(texts, "; "), maxMessage)}
}

// conditions gives each problem as what Ready would say of it.
func conditions(problems []problem) []Condition {
	var out []Condition
	for _, p := range problems {
		c := readiness([]problem{p})
		out = append(out, c)
	}
	return out
}
