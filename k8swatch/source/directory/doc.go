// Package directory follows the objects in the files of a directory, for a proxy
// on a host without a Kubernetes API (CONF-6).
//
// A file holds the manifests that `kubectl apply` would take. A file counts once
// it has stood still for a moment, because a file that is being written may
// parse and lack its last lines. A file that cannot be read or parsed keeps what
// it gave before.
//
// No error repeats a value of a file: a Secret is usually one line away.
package directory
