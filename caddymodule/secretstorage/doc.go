// Package secretstorage keeps certmagic's assets (ACME accounts, certificates
// and their keys) in Secrets of one Kubernetes namespace, so that all replicas
// of a proxy share them, and locks with Leases, so that one replica at a time
// obtains a certificate. It does not import Caddy.
//
// # Secrets
//
// Each key is one Secret of a type of its own. The Secret's name is derived
// from a digest of the key; the key itself is an annotation, and one label for
// each directory above it lets the apiserver select what a directory holds. A
// list reads metadata alone: no private key is transferred for it. The type of
// a Secret cannot be changed, so a Secret that something else made under such
// a name is never overwritten.
//
// # Locks
//
// A lock is a Lease with a holder that is unique to the acquisition. The holder
// renews it in the background until Unlock. A Lease is taken over when it was
// seen unchanged for as long as it says, measured on the clock of whoever waits:
// the clocks of two machines are never compared. Every change is conditional
// on what was read (resourceVersion), so that two that wait cannot both win.
// As with any lease, a holder that was stopped longer than the duration may
// still believe that it holds the lock for a moment after it goes on;
// RenewLockLease, which certmagic calls before each attempt to obtain a
// certificate, tells it.
//
// # Rights
//
// In the namespace: get, list, create, patch and delete of secrets; get, create,
// update and delete of leases (coordination.k8s.io). The namespace is one of its
// own, since whoever may read its Secrets has the keys of all the certificates:
// nothing else should be in it, and nobody but the proxy should have rights
// there.
package secretstorage
