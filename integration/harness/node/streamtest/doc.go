// Package streamtest runs every kubectl command that streams against a pod of
// a node: exec, attach, cp, port-forward, logs -f and watch, over WebSocket
// and over SPDY. The tests of the node run it on the apiserver itself, those
// of the relay through the proxy.
package streamtest
