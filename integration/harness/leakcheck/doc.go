// Package leakcheck searches what a program writes and sends for credentials
// (SIG-3, OBS-01). It finds every piece of them that is long enough to be no
// accident, so that neither a cut nor a prefix hides one.
package leakcheck
