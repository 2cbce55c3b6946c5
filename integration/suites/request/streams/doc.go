// Package streams tests that what kubectl streams passes the proxy
// unharmed: exec, attach, cp, port-forward, logs -f and watch on a real pod,
// over WebSocket and SPDY, in both modes (RELAY-2), and in quantity (LIM-02,
// RELAY-6).
package streams
