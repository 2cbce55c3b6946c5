// Package hostile sends the proxy what a client or an apiserver should not send:
// smuggled and misspelt header lines, forged tokens, paths in every spelling,
// protocol switches without a request, bodies that never come.
//
// They run the program as operators do, between bytes of the tests' own choice
// on both sides: rawclient in front, rawserver behind. One proxy with one
// provider and four recording upstreams is shared by most of them; tests that
// need another configuration start their own.
package hostile
