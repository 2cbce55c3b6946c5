//go:build long

package admission

import "testing"

// API-1, API-3: more kinds of change in each place than the short test has
// time for.
func TestLongAPI1EveryPlace(t *testing.T) {
	j := newJudges(t)
	j.installCRD(t)
	j.everyPlace(t, mutator{thorough: true})
}
