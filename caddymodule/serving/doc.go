// Package serving holds what serves requests and survives a reload of the
// configuration.
//
// A Process is all there is once a process: the runtimes of its configurations,
// the open streams, the client connections, the elections and the metrics. A
// Runtime reads ProxyKubeApis from a source, compiles each change, and swaps the
// result in as one immutable Snapshot: changes in, clusters out. A request
// loads the snapshot once and takes no lock. A Cluster is a compiled object
// together with its Trust (may requests go there), its Relay (over which
// connections) and its Auth (who sends them); a new version of an object shares
// with the old one what did not change.
//
// Two configurations with the same Options share one Runtime, so that a reload
// keeps clusters, caches, connections and the Lease. A reload that changes an
// option makes a second Runtime, which takes over when all apps have started.
//
// # Threat model
//
// The authors of objects are trusted with their own apiserver only: no object
// may change which certificate another cluster presents, which callers it lets in
// or how its requests are counted. A panic over one object closes that one alone.
// An object that was deleted and created again is another object: it inherits no
// verdict, no connection and no count.
package serving
