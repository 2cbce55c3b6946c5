// Package storage holds the tests of the storage in Secrets on a real
// kube-apiserver, with the rights that its documentation names and no others.
// What certmagic expects of any storage is one suite, which its own file
// storage passes too.
package storage
