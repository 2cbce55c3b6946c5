// Package faults asks what becomes of requests when an identity provider
// misbehaves, and of providers when clients do: every fault at each thing that a
// validator asks a provider for (AUTH-13), floods of tokens good and bad (AUTH-5,
// AUTH-12), and crowds that come with one new token.
//
// The program under test is the built one, in FrontProxy before a real
// kube-apiserver, which says who arrived.
package faults
