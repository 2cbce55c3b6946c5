package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
)

// Every spelling of an address that leads to the proxy's own host or link.
func TestDefaultDeniesEverySpelling(t *testing.T) {
	p, err := Parse(Default())
	if err != nil {
		t.Fatal(err)
	}
	for text, denied := range map[string]bool{
		"127.0.0.1": true, "127.255.0.9": true, "0.0.0.0": true, "0.1.2.3": true, "169.254.169.254": true,
		"::1": true, "::": true, "fe80::1": true, "fe80::1%eth0": true, "febf::1": true,
		"::ffff:127.0.0.1": true, "::ffff:169.254.169.254": true, "::127.0.0.1": true, "::ffff:0.0.0.0": true,
		"64:ff9b::169.254.169.254": true, "64:ff9b::127.0.0.1": true, "64:ff9b:1::a9fe:a9fe": true,
		"2002:7f00:1::": true, "2002:a9fe:a9fe::1": true,

		"10.0.0.1": false, "192.168.1.1": false, "172.16.0.1": false, "8.8.8.8": false, "169.253.0.1": false, "126.0.0.1": false,
		"fd00::1": false, "2001:db8::1": false, "64:ff9b::10.0.0.1": false, "2002:a00:1::": false, "::ffff:10.0.0.1": false, "fec0::1": false,
	} {
		if got := p.DeniesAddress(netip.MustParseAddr(text)); got != denied {
			t.Errorf("%s: denied = %t", text, got)
		}
	}
}

func TestParse(t *testing.T) {
	for text, ok := range map[string]bool{
		"10.0.0.0/8": true, "10.1.2.3": true, "fd00::/8": true, "::1": true, "::ffff:10.0.0.0/104": true,
		"metadata.google.internal": true, "*.internal": true, "Vault.example.test.": true, "a_b": true,
		"": false, "*": false, "*.": false, "10.0.0.0/33": false, "10.0.0": false, "1.2.3.4.5": false, "a b": false, "a..b": false,
		"https://a": false, "a:80": false, "::ffff:0:0/90": false, "*.*.a": false,
	} {
		if _, err := Parse([]string{text}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDeniesName(t *testing.T) {
	p, err := Parse([]string{"metadata.google.internal", "*.svc.cluster.local"})
	if err != nil {
		t.Fatal(err)
	}
	for host, denied := range map[string]bool{
		"metadata.google.internal": true, "METADATA.google.internal.": true, "vault.team.svc.cluster.local": true,
		"google.internal": false, "svc.cluster.local": false, "xsvc.cluster.local": false, "": false,
	} {
		if got := p.DeniesName(host); got != denied {
			t.Errorf("%q: denied = %t", host, got)
		}
	}
}

// A mapped prefix denies what it means.
func TestMappedPrefix(t *testing.T) {
	p, err := Parse([]string{"::ffff:10.0.0.0/104", "::ffff:192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	for text, denied := range map[string]bool{"10.9.9.9": true, "192.0.2.1": true, "192.0.2.2": false, "11.0.0.1": false} {
		if got := p.DeniesAddress(netip.MustParseAddr(text)); got != denied {
			t.Errorf("%s: denied = %t", text, got)
		}
	}
}

// The address that is dialled counts, whatever the name was.
func TestDialerLooksAtTheAddress(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	denying, err := Parse(append(Default(), "denied.example.test"))
	if err != nil {
		t.Fatal(err)
	}
	// A resolver that knows every name as the loopback address.
	resolver := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no name is looked up in this test")
	}}}
	for _, test := range []struct {
		policy *Policy
		host   string
		denied bool
	}{
		{nil, "127.0.0.1", false},
		{denying, "127.0.0.1", true},
		{denying, "localhost", true},
		{denying, "::ffff:127.0.0.1", true},
		{denying, "0.0.0.0", true},
		{denying, "denied.example.test", true},
	} {
		conn, err := test.policy.Dialer(resolver)(t.Context(), "tcp", net.JoinHostPort(test.host, port))
		if conn != nil {
			conn.Close()
		}
		if errors.Is(err, ErrDenied) != test.denied || !test.denied && err != nil {
			t.Errorf("%s: %v, denied must be %t", test.host, err, test.denied)
		}
	}
}
