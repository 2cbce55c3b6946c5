// Package source tests the source of a hub on real apiservers: what it sees,
// how soon, and that it asks for nothing that the chart does not grant.
package source
