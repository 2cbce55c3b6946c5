// Package boundedjson reads answers in JSON from servers that are not trusted.
//
// # Threat model
//
// The author of a ProxyKubeApi names the apiservers and identity providers that
// the proxy asks, and there are as many servers as such authors like. An answer
// that is parsed takes many times its bytes, a member of an object forty times.
// So a Reader limits how many bytes an answer has and how many large answers are
// in memory at once, and Count finds how many values an answer holds before room
// is made for any of them (AUTH-13).
package boundedjson
