// Package boundedjson reads JSON that servers and clients wrote who are not
// trusted, at a bounded cost and in one way only.
//
// # Threat model
//
// The author of a ProxyKubeApi names the apiservers and identity providers that
// the proxy asks, and there are as many servers as such authors like. An answer
// that is parsed takes many times its bytes, a member of an object forty times.
// So a Reader limits how many bytes an answer has and how many large answers are
// in memory at once, and Count finds how many values an answer holds before room
// is made for any of them (AUTH-13). A server may begin a large answer and never end
// it: objects and namespaces have a share of the places each, and cannot take all.
//
// A text with two readings could mean one user to the proxy and another to an
// apiserver. So Object looks at the bytes before encoding/json does, because that
// decoder repairs them: it writes U+FFFD for text that is not valid UTF-8 and for
// half of a surrogate pair, and takes the last of two members with one name.
package boundedjson
