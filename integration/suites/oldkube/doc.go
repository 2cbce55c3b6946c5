// Package oldkube runs the product on the oldest Kubernetes that it promises to
// work with (section 17 of the reference): 1.29 as the hub, 1.28 and 1.29 behind
// the proxy. kubectl is the current one, but for a test of redirects, which has an
// older kubectl in front of a current apiserver.
//
// What a test of another package shows on the current version is shown on these
// in that package, by a long test of its own: admission (admission), status,
// Events, leadership and outages (suites/hub/replicas), each fault of a front proxy
// (suites/hub/migration).
package oldkube
