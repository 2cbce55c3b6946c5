package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Form is a way to the cluster: its name and its kubeconfig.
type Form struct{ Name, Kubeconfig string }

// Verdict says what a test that passed directly did through the proxy.
type Verdict string

// Verdicts. Only a Fault fails the comparison.
const (
	Same     Verdict = "passed"
	ByDesign Verdict = "by design"
	// Chance failed once and passed when it was repeated, or failed when it was
	// repeated directly.
	Chance Verdict = "by chance"
	Fault  Verdict = "fault"
)

// Finding is what is to be told about one test.
type Finding struct {
	Form    string  `json:"form"`
	Test    string  `json:"test"`
	Verdict Verdict `json:"verdict"`
	// Reason is that of the list, or how the repetition ended.
	Reason  string `json:"reason,omitempty"`
	Failure string `json:"failure,omitempty"`
}

// Comparison is what a run found.
type Comparison struct {
	Tests    int                `json:"tests"`
	Direct   Results            `json:"direct"`
	Forms    map[string]Results `json:"forms"`
	Findings []Finding          `json:"findings"`

	forms []string // in their order
}

// Compare runs the tests directly, and those that pass through each form. Those
// that are listed with a remedy have to pass through the form of that name.
func (r *Runner) Compare(ctx context.Context, direct Form, forms, remedies []Form, tests []string) (*Comparison, error) {
	listed, err := parseList(differencesFile)
	if err != nil {
		return nil, err
	}
	c := &Comparison{Tests: len(tests), Forms: map[string]Results{}}
	if c.Direct, err = r.Run(ctx, direct.Name, direct.Kubeconfig, tests); err != nil {
		return nil, err
	}
	var good []string
	for _, name := range sortedNames(c.Direct) {
		if c.Direct[name].Passed {
			good = append(good, name)
		}
	}
	for _, form := range forms {
		c.forms = append(c.forms, form.Name)
		if c.Forms[form.Name], err = r.Run(ctx, form.Name, form.Kubeconfig, good); err != nil {
			return c, err
		}
		if err := r.judge(ctx, c, direct, form, good, listed); err != nil {
			return c, err
		}
	}
	for _, remedy := range remedies {
		if err := r.tryRemedy(ctx, c, remedy, good, listed); err != nil {
			return c, err
		}
	}
	return c, nil
}

// tryRemedy runs the tests that are said to pass with a setting.
func (r *Runner) tryRemedy(ctx context.Context, c *Comparison, remedy Form, good []string, listed map[string]entry) error {
	var tests []string
	for name, e := range listed {
		if _, test, ok := strings.Cut(name, ": ["); ok {
			name = "[" + test
		}
		if e.remedy == remedy.Name && slices.Contains(good, name) && !slices.Contains(tests, name) {
			tests = append(tests, name)
		}
	}
	results, err := r.Run(ctx, strings.ReplaceAll(remedy.Name, " ", "-"), remedy.Kubeconfig, tests)
	if err != nil {
		return err
	}
	for _, name := range tests {
		if !results[name].Passed {
			c.Findings = append(c.Findings, Finding{
				Form: remedy.Name, Test: name, Verdict: Fault, Reason: "it is said to pass with this setting", Failure: results[name].Failure,
			})
		}
	}
	return nil
}

// judge compares one form with the direct run. What failed and is not listed is
// repeated both ways.
func (r *Runner) judge(ctx context.Context, c *Comparison, direct, form Form, good []string, listed map[string]entry) error {
	results := c.Forms[form.Name]
	var again []string
	for _, name := range good {
		_, byDesign := differs(listed, form.Name, name)
		if !results[name].Passed && !byDesign {
			again = append(again, name)
		}
	}
	directly, err := r.Run(ctx, direct.Name+"-again", direct.Kubeconfig, again)
	if err != nil {
		return err
	}
	through, err := r.Run(ctx, form.Name+"-again", form.Kubeconfig, again)
	if err != nil {
		return err
	}
	c.Findings = append(c.Findings, findings(form.Name, good, results, directly, through, listed)...)
	return nil
}

// differs is the reason of a test to differ through a form: an entry holds for
// all forms, or, with the name of one and a colon in front, for that one.
func differs(listed map[string]entry, form, name string) (string, bool) {
	e, ok := listed[form+": "+name]
	if !ok {
		e, ok = listed[name]
	}
	return e.reason, ok
}

// findings are those about one form: results of the first run, and of the
// repetition both ways.
func findings(form string, good []string, results, directly, through Results, listed map[string]entry) (found []Finding) {
	for _, name := range good {
		reason, byDesign := differs(listed, form, name)
		f := Finding{Form: form, Test: name, Failure: results[name].Failure}
		switch {
		case results[name].Passed && byDesign:
			f.Verdict, f.Reason = Fault, "it is listed as different, and passed"
		case results[name].Passed:
			continue
		case byDesign:
			f.Verdict, f.Reason = ByDesign, reason
		case through[name].Passed:
			f.Verdict, f.Reason = Chance, "it passed when it was repeated"
		case !directly[name].Passed:
			f.Verdict, f.Reason = Chance, "it failed directly when it was repeated: "+directly[name].Failure
		default:
			f.Verdict, f.Reason, f.Failure = Fault, "it failed twice, and passed twice directly", through[name].Failure
		}
		if f.Failure == "" && !results[name].Passed {
			f.Failure = "it did not run to its end"
		}
		found = append(found, f)
	}
	return found
}

// Faults are the findings that may not be.
func (c *Comparison) Faults() []Finding {
	return slices.DeleteFunc(slices.Clone(c.Findings), func(f Finding) bool { return f.Verdict != Fault })
}

// Passed is how many tests passed directly.
func (c *Comparison) Passed() int { return c.Direct.passed() }

// Table sums up.
func (c *Comparison) Table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\ttests\tpassed\tfailed\tby design\tby chance\tfaults\t")
	fmt.Fprintf(w, "direct\t%d\t%d\t%d\t\t\t\t\n", c.Tests, c.Direct.passed(), c.Tests-c.Direct.passed())
	for _, form := range c.forms {
		count := map[Verdict]int{}
		for _, f := range c.Findings {
			if f.Form == form {
				count[f.Verdict]++
			}
		}
		tests, passed := c.Direct.passed(), c.Forms[form].passed()
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", form, tests, passed, tests-passed, count[ByDesign], count[Chance], count[Fault])
	}
	w.Flush()
	for _, f := range c.Findings {
		fmt.Fprintf(&b, "%s, %s: %s\n    %s\n", f.Form, f.Verdict, f.Test, f.Reason)
		if f.Failure != "" {
			fmt.Fprintf(&b, "    %s\n", f.Failure)
		}
	}
	return b.String()
}

// Write keeps what was found in files: name.json, and the table in name.txt.
func (c *Comparison) Write(dir, name string) error {
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("keeping the results: %w", err)
	}
	for file, b := range map[string][]byte{name + ".json": content, name + ".txt": []byte(c.Table())} {
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
			return fmt.Errorf("keeping the results: %w", err)
		}
	}
	return nil
}
