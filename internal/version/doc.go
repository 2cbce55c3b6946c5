// Package version says which version of this product runs: the one that the
// Makefile and the Containerfile stamp into the program, else the version under
// which Go built the module.
package version
