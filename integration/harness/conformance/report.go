package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// Result is how one test ended.
type Result struct {
	Passed bool          `json:"passed"`
	Took   time.Duration `json:"took"`
	// Failure is what the test said, empty when it passed.
	Failure string `json:"failure,omitempty"`
}

// Results are those of a run, by the names of the tests.
type Results map[string]Result

// passed are the names of the tests that passed.
func (r Results) passed() int {
	n := 0
	for _, result := range r {
		if result.Passed {
			n++
		}
	}
	return n
}

// spec is what is read of one test in a report of ginkgo.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct {
		Message  string
		Location struct {
			FileName   string
			LineNumber int
		}
	}
}

func (s *spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// readReport reads a report of ginkgo: the tests that ran, or would have run. A
// suite that did not come to its tests is an error.
func readReport(file string) (Results, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	var reports []struct{ SpecReports []spec }
	if err := json.Unmarshal(content, &reports); err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	results := Results{}
	for _, report := range reports {
		for i := range report.SpecReports {
			s := &report.SpecReports[i]
			if s.LeafNodeType != "It" {
				if s.State == "failed" || s.State == "panicked" {
					return nil, fmt.Errorf("%s: %s", s.LeafNodeType, s.failure())
				}
				continue
			}
			if s.State != "skipped" && s.State != "pending" {
				results[s.name()] = Result{Passed: s.State == "passed", Took: s.RunTime, Failure: s.failure()}
			}
		}
	}
	return results, nil
}

// failure is the message in one line, with its place.
func (s *spec) failure() string {
	if s.Failure.Message == "" {
		return ""
	}
	message := strings.Join(strings.Fields(s.Failure.Message), " ")
	if len(message) > 600 {
		message = message[:600] + " ..."
	}
	file := s.Failure.Location.FileName
	if _, inModule, ok := strings.Cut(file, "/test/e2e/"); ok {
		file = inModule
	}
	return fmt.Sprintf("%s (%s:%d)", message, file, s.Failure.Location.LineNumber)
}
