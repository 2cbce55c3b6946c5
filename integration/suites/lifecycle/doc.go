// Package lifecycle holds the tests of what happens to a running proxy: reloads
// of the configuration, changes of the directory, renewals and withdrawals of
// certificates, configurations that are wrong, and the end of the process.
// Streams that clients have open are what these tests look at first.
//
// Where a test needs an upgrade or the bytes of a request, the recording server
// stands in for the apiserver; renewal under load and the separation of two
// clusters run on real ones.
package lifecycle
