// Package neterr says what kind of trouble a connection had.
//
// The error of a connection may hold addresses of the proxy's network and bytes
// that the other end sent, which a status or an answer must not show (SIG-3).
// Callers choose their own words for a Kind and show those instead.
package neterr
