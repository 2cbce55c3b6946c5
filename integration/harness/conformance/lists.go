package conformance

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

//go:embed differences.txt
var differencesFile string

//go:embed leftout.txt
var leftOutFile string

//go:embed quick.txt
var quickFile string

// entry is what a list says about a test.
type entry struct {
	reason string
	// remedy is a setting of the proxy with which the test passes.
	remedy string
}

// parseList reads lines of a test's name, a reason and perhaps a remedy, with two
// bars between; empty lines and those that begin with # count for nothing.
func parseList(text string) (map[string]entry, error) {
	list := map[string]entry{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, " || ")
		if len(fields) < 2 || len(fields) > 3 || fields[1] == "" {
			return nil, fmt.Errorf("the entry %q has to be a name, a reason and perhaps a remedy", line)
		}
		if _, twice := list[fields[0]]; twice {
			return nil, fmt.Errorf("%q is listed twice", fields[0])
		}
		e := entry{reason: fields[1]}
		if len(fields) == 3 {
			e.remedy = fields[2]
		}
		list[fields[0]] = e
	}
	return list, nil
}

// Quick are the tests of the quick subset.
func Quick() []string {
	var names []string
	for line := range strings.Lines(quickFile) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			names = append(names, line)
		}
	}
	return names
}

// ParseShard reads 2/3 as the second of three parts; nothing is all.
func ParseShard(text string) (k, n int, err error) {
	if text == "" {
		return 1, 1, nil
	}
	first, second, _ := strings.Cut(text, "/")
	if k, err = strconv.Atoi(first); err == nil {
		n, err = strconv.Atoi(second)
	}
	if err != nil || k < 1 || k > n {
		return 0, 0, fmt.Errorf("SHARD is %q, and has to be like 2/3", text)
	}
	return k, n, nil
}

// Shard is the k-th of n parts of the tests, k from 1.
func Shard(tests []string, k, n int) []string {
	var part []string
	for i, name := range slices.Sorted(slices.Values(tests)) {
		if i%n == k-1 {
			part = append(part, name)
		}
	}
	return part
}

// Runnable are the tests without those that are left out. A name that is left
// out and does not exist is an error.
func Runnable(tests []string) ([]string, error) {
	out, err := parseList(leftOutFile)
	if err != nil {
		return nil, err
	}
	for name := range out {
		if !slices.Contains(tests, name) {
			return nil, fmt.Errorf("there is no test %q to leave out", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(tests), func(name string) bool { return out[name].reason != "" }), nil
}

func sortedNames(r Results) []string { return slices.Sorted(maps.Keys(r)) }
