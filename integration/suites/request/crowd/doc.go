// Package crowd sends the requests of many users over few connections, on both
// sides of the proxy, and looks at each answer: it has to be about its own
// request and its own user.
package crowd
