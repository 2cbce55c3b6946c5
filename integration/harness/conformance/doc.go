// Package conformance runs Kubernetes' own conformance tests against a cluster
// of one node, straight and through the proxy, and compares the results test by
// test: nobody here wrote what they ask.
//
// A test that passes directly has to pass through the proxy. Differences that
// are meant stand in differences.txt with a reason each, and the comparison
// holds that list to what happens: a difference that it lacks is an error, and
// so is an entry without a difference. Tests that one node cannot run are in
// leftout.txt. A test that fails through the proxy runs again both ways, so that
// chance is told from fault.
package conformance
