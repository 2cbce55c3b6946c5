// Package drain lets the end of the process wait until what is open has closed.
package drain
