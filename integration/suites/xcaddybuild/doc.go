// Package xcaddybuild holds the test that xcaddy builds the same server as
// `make build` (CONF-7). It is behind the build tag xcaddy, since it links the
// whole server once more: `make xcaddy` runs it.
package xcaddybuild
