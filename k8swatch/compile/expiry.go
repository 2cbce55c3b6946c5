package compile

import (
	"crypto/x509"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
)

const (
	expiringAtMost = 30 * 24 * time.Hour
	expiringGrace  = 10 * time.Minute
)

// expiringFrom is when the notice ClientCertExpiring begins: ten minutes past the
// point where less than min(30 d, a third of its lifetime) is left, so that
// a renewal at a third of the lifetime is not announced each time (REC-6).
func expiringFrom(cert *x509.Certificate) time.Time {
	left := min(cert.NotAfter.Sub(cert.NotBefore)/3, expiringAtMost)
	return cert.NotAfter.Add(-left).Add(expiringGrace)
}

// nextLook is when the passing of time alone changes what may be presented of a
// certificate in use, nil for none, and of the pair that was last seen.
func nextLook(inUse *k8swatch.ClientCertificate, seen keypair.Pair, now time.Time) time.Time {
	var next time.Time
	if inUse != nil {
		// A certificate is still valid at its NotAfter.
		next = earliest(next, inUse.Leaf.NotAfter.Add(time.Nanosecond), now)
		next = earliest(next, expiringFrom(inUse.Leaf), now)
	}
	if seen.Certificate != nil {
		next = earliest(next, seen.Leaf.NotBefore, now)
		next = earliest(next, seen.Leaf.NotAfter.Add(time.Nanosecond), now)
	}
	return next
}

// earliest returns the earlier of two times, of which candidate counts only
// when it is still to come; zero is never.
func earliest(current, candidate, now time.Time) time.Time {
	if !candidate.After(now) || !current.IsZero() && current.Before(candidate) {
		return current
	}
	return candidate
}
