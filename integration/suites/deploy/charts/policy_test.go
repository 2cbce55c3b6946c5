package charts

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// What the proxy reaches by default: resolvers, and the usual ports of apiservers
// and identity providers, but not the metadata services of clouds, which give
// the credentials of the node to any program that asks (CHART-3).
func TestDefaultEgress(t *testing.T) {
	t.Parallel()
	policy := one[*networkingv1.NetworkPolicy](t, render(t, chart(t)))
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
	for _, c := range []struct {
		address  string
		protocol corev1.Protocol
		port     int32
		want     bool
	}{
		{"10.96.0.10", udp, 53, true},
		{"10.128.0.7", udp, 5353, true},
		{"10.128.0.7", tcp, 5353, true},
		{"169.254.20.10", udp, 53, true}, // the resolver of a node
		{"2001:db8::53", tcp, 53, true},
		{"192.0.2.1", tcp, 443, true},
		{"192.0.2.1", tcp, 6443, true},
		{"192.0.2.1", tcp, 8443, true},
		{"2001:db8::1", tcp, 6443, true},
		{"10.244.0.7", tcp, 8443, true},
		{"192.0.2.1", tcp, 80, false},
		{"192.0.2.1", udp, 443, false},
		{"192.0.2.1", tcp, 6379, false},
		{"169.254.169.254", tcp, 80, false}, // AWS, Azure, Google and others
		{"169.254.169.254", tcp, 443, false},
		{"169.254.169.254", tcp, 8443, false},
		{"169.254.170.2", tcp, 443, false},   // tasks of AWS
		{"169.254.170.23", tcp, 443, false},  // pods of AWS
		{"100.100.100.200", tcp, 443, false}, // Alibaba
		{"168.63.129.16", tcp, 443, false},   // Azure's agent
		{"fd00:ec2::254", tcp, 443, false},   // AWS
		{"fd20:ce::254", tcp, 443, false},    // Google
		{"fe80::1", tcp, 443, false},
	} {
		if got := reaches(t, policy, netip.MustParseAddr(c.address), c.protocol, c.port); got != c.want {
			t.Errorf("%s %s %d: reached %v", c.address, c.protocol, c.port, got)
		}
	}
}

// reaches says whether a policy lets its pods reach an address that is no pod's.
func reaches(t *testing.T, policy *networkingv1.NetworkPolicy, address netip.Addr, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	contains := func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			t.Fatal(err)
		}
		return prefix.Contains(address)
	}
	for _, rule := range policy.Spec.Egress {
		ports := len(rule.Ports) == 0
		for _, p := range rule.Ports {
			ports = ports || *p.Protocol == protocol && p.Port.IntVal == port
		}
		peers := len(rule.To) == 0
		for _, peer := range rule.To {
			if peer.IPBlock == nil || !contains(peer.IPBlock.CIDR) {
				continue
			}
			excepted := false
			for _, cidr := range peer.IPBlock.Except {
				excepted = excepted || contains(cidr)
			}
			peers = peers || !excepted
		}
		if ports && peers {
			return true
		}
	}
	return false
}
