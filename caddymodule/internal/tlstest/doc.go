// Package tlstest serves HTTPS to the tests of what asks identity providers.
package tlstest
