// Package issuertest has an issuer of tokens for tests: it signs tokens and
// publishes its keys.
package issuertest
