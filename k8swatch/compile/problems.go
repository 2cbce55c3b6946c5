package compile

import (
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
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
	return problem{reason: k8swatch.ReasonInvalidSpec, path: path, text: text}
}

// unsupported refuses a field that restricts or authenticates and that this
// version does not implement; more says what the path alone does not (API-8).
func unsupported(path, more string) problem {
	text := path + " is not supported by this version"
	if more != "" {
		text += ": " + more
	}
	return problem{reason: k8swatch.ReasonInvalidSpec, text: text}
}

// fromFaults makes a problem of each broken rule.
func fromFaults(faults []admission.Fault) []problem {
	problems := make([]problem, 0, len(faults))
	for _, f := range faults {
		problems = append(problems, invalid(f.Path, f.Text))
	}
	return problems
}

// withoutRepeats returns the problems of first, and those of more whose field
// first does not name. The compiler repeats some rules of admission for objects
// that are older than the rules; both must not say the same of one field.
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

// readiness is the Ready condition. Its reason is that of the first problem, and
// its message lists all problems of that reason.
func readiness(problems []problem) k8swatch.Condition {
	if len(problems) == 0 {
		return k8swatch.Condition{Type: k8swatch.ConditionReady, Status: k8swatch.StatusTrue, Reason: k8swatch.ReasonServing, Message: "the cluster is served"}
	}
	first := problems[0].reason
	var texts []string
	for _, p := range problems {
		if p.reason == first {
			texts = append(texts, p.message())
		}
	}
	status := k8swatch.StatusFalse
	if first == k8swatch.ReasonUpstreamModeUnknown {
		status = k8swatch.StatusUnknown
	}
	return k8swatch.Condition{Type: k8swatch.ConditionReady, Status: status, Reason: first, Message: text.OneLine(strings.Join(texts, "; "), k8swatch.MaxMessage)}
}

// conditions makes of each problem the Ready condition that it alone would give.
func conditions(problems []problem) []k8swatch.Condition {
	var out []k8swatch.Condition
	for _, p := range problems {
		out = append(out, readiness([]problem{p}))
	}
	return out
}
