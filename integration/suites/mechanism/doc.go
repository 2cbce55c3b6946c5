// Package mechanism pins down what a real apiserver does with a front proxy and
// with bearer tokens. No line of the product runs here: the design takes these
// facts as given.
package mechanism
