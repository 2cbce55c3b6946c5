// Package users holds the tests of who is asking, by every validator and
// through token exchange, on real components: a provider that logs users in,
// answers userinfo and introspection and exchanges tokens, kube-apiservers
// whose audit logs say who arrived, and recording upstreams that keep every
// byte.
//
// Each configuration is tried in front of four targets: an apiserver and a
// recorder, in Passthrough and in FrontProxy. The apiserver in Passthrough
// validates bearers itself and names who it sees otherwise than the proxy does;
// the one in FrontProxy knows no identity provider.
package users
