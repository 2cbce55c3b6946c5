package proxy

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// races.txt lists the races of the libraries that the product is built from, as
// they were found and judged: two functions a line, those whose accesses meet,
// and why that does no harm. A line that starts with # is a comment.
//
//go:embed races.txt
var racesFile string

// race is the functions of the two accesses, in the order of their names.
type race [2]string

// knownRaces parses such a list. Without a reason a line is refused: nothing is
// to be listed that was not understood.
func knownRaces(list string) (map[race]bool, error) {
	known := map[race]bool{}
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 {
			return nil, fmt.Errorf("races.txt: %q is not two functions and a reason", line)
		}
		if strings.Contains(fields[0]+fields[1], "caddy-proxyauthk8s") {
			return nil, fmt.Errorf("races.txt: %q is a race of the product", line)
		}
		known[newRace(fields[0], fields[1])] = true
	}
	return known, nil
}

func newRace(a, b string) race {
	r := race{a, b}
	slices.Sort(r[:])
	return r
}

// raceMark is the first line of a race report.
const raceMark = "WARNING: DATA RACE\n"

// access is the head of a stack in a race report, and the first function of it,
// which follows on the next line.
var access = regexp.MustCompile(`(?m)^(?:Write|Read|Previous write|Previous read|Atomic \w+|Previous atomic \w+) at .*\n\s+(\S+?)\(\)$`)

// unknownRaces are the race reports in what a program wrote that are none of
// the known ones.
func unknownRaces(output string, known map[race]bool) (reports []string) {
	_, rest, more := strings.Cut(output, raceMark)
	for more {
		var report string
		report, rest, more = strings.Cut(rest, raceMark)
		report, _, _ = strings.Cut(report, "==================")
		// A stack that could not be restored is no known one.
		found := access.FindAllStringSubmatch(report, -1)
		if len(found) != 2 || !known[newRace(found[0][1], found[1][1])] {
			reports = append(reports, report)
		}
	}
	return reports
}
