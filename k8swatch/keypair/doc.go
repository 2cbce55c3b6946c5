// Package keypair parses certificates and private keys that other people wrote:
// the CA bundle of an apiserver, a client certificate with its key.
//
// # Threat model
//
// A tenant chooses the bytes. Parsing them must not cost more than a good
// certificate does, so that numbers and sizes are bounded before crypto/x509
// sees them (cost.go). No error repeats anything of the contents.
package keypair
