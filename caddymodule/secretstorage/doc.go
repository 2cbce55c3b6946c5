// Package secretstorage keeps certmagic's assets (ACME accounts, certificates
// and their keys) in Secrets of one Kubernetes namespace, so that all replicas
// of a proxy share them, and locks with Leases, so that one replica at a time
// obtains a certificate. It does not import Caddy.
//
// # Secrets
//
// Each key is one Secret of a type of its own. The Secret's name is derived
// from a digest of the key. The key itself is an annotation, and one label for each
// directory above it lets the apiserver select the contents of a directory. A
// list reads metadata alone: no private key is transferred for it. The type of
// a Secret cannot be changed, so a Secret that another program made under such
// a name is never overwritten.
//
// # Locks
//
// A lock is a Lease with a holder that is unique to the acquisition. The holder
// renews it in the background until Unlock. A process that waits takes a Lease
// over when it has seen it unchanged for the duration that the Lease says, by its
// own clock: the clocks of two machines are never compared. Every change is
// conditional on the version that was read (resourceVersion), so that two
// processes cannot both take it over. As with any lease, a holder that was
// suspended for longer than the duration may believe for a moment that it still
// holds the lock. RenewLockLease reports the loss; certmagic calls it before each
// attempt to obtain a certificate.
//
// client-go's leader election does not fit: it keeps a Lease object for each
// name for ever, and has no TryLock.
//
// # Rights
//
// In the namespace: get, list, create, patch and delete of secrets; get, create,
// update and delete of leases (coordination.k8s.io). The namespace is one of its
// own, since a right to read its Secrets is a right to the keys of all the
// certificates: it should hold nothing else, and only the proxy should have
// rights there.
package secretstorage
