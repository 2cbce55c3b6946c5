// Package differential gives the same bearers to a real kube-apiserver with
// --authentication-config and to the proxy with the same jwt, and compares
// what becomes of them: the same name, uid, groups and extra, or the same
// refusal. Where the two differ on purpose, the table of the tests says why.
package differential
