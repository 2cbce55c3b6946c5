// Package probe holds the tests of what the proxy does about an apiserver that
// does not honour it, or does not answer (TRUST-1 to TRUST-4), on real
// apiservers: one that is right, one without the flag for groups, one without
// the flag for extras. A TCP pipe stands before each, which can delay, hold,
// refuse and lead elsewhere without the proxy knowing.
package probe
