package compile

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func TestExpiringFrom(t *testing.T) { // REC-6
	const day = 24 * time.Hour
	tests := map[string]struct{ lifetime, left time.Duration }{
		"24 h": {day, 8*time.Hour - 10*time.Minute},
		"90 d": {90 * day, 30*day - 10*time.Minute},
		"89 d": {89 * day, 89*day/3 - 10*time.Minute},
		"10 y": {3650 * day, 30*day - 10*time.Minute},
		"1 h":  {time.Hour, 10 * time.Minute},
		"15 m": {15 * time.Minute, -5 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cert := &x509.Certificate{NotBefore: k8stest.Now, NotAfter: k8stest.Now.Add(test.lifetime)}
			if left := cert.NotAfter.Sub(expiringFrom(cert)); left != test.left {
				t.Errorf("told with %v left, want %v", left, test.left)
			}
		})
	}
}
