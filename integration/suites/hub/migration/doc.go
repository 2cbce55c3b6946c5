// Package migration holds the test of a cluster's way from Passthrough to
// FrontProxy and back, on real apiservers: prepare, see each fault in the
// status, mend, switch, return, and no request fails.
package migration
