// Package layout holds the test that keeps the repository in its layout: which
// package may import which, where Caddy is imported, that no package keeps
// mutable variables, that every package explains itself, and how long a file is.
//
// A change that the test refuses needs either another place for the code or a
// line in the tables of layout_test.go, with a reason that a reviewer accepts.
package layout
