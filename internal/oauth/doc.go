// Package oauth reads the errors that endpoints of OAuth 2.0 answer with.
package oauth
