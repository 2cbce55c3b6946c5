// Package differential gives the same bearers to a real kube-apiserver with
// --authentication-config and to the proxy with the same jwt, in FrontProxy
// before that apiserver, and compares what becomes of them: the same name, uid,
// groups and extra, or the same refusal.
//
// The table of bearers is in the rows_*_test.go files, a line for each: its
// name, how it is made, what the apiserver makes of it, and what the proxy
// does: the same, but where the last column names a difference. The table in
// the package comment of caddymodule/authn explains each of these names;
// documented_test.go holds the two tables against each other.
package differential
