package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func parse(t *testing.T, list ...string) *Policy {
	t.Helper()
	p, err := Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDeniesAddress(t *testing.T) {
	byDefault := strings.Fields(Default)
	for name, tt := range map[string]struct {
		list          []string
		denied, taken []string
	}{
		"default": {
			byDefault,
			[]string{
				"127.0.0.1", "127.255.0.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "::1", "::", "fe80::1", "fe80::1%eth0", "febf::1",
				"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "::127.0.0.1",
				"64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b:1::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1",
				"::ffff:0:169.254.169.254",
			},
			[]string{
				"10.0.0.1", "192.168.1.1", "172.16.0.1", "8.8.8.8", "169.253.0.1", "126.0.0.1", "fd00::1", "2001:db8::1",
				"64:ff9b::10.0.0.1", "2002:a00:1::", "::ffff:10.0.0.1", "fec0::1",
			},
		},
		"none":             {[]string{None}, nil, []string{"127.0.0.1", "::1", "0.0.0.0", "169.254.169.254"}},
		"nothing said":     {nil, nil, []string{"127.0.0.1", "::"}},
		"an IPv4 range":    {[]string{"10.0.0.0/8"}, []string{"10.1.2.3", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::"}, []string{"11.0.0.1", "::1", "fd00::1"}},
		"an address":       {[]string{"192.0.2.1"}, []string{"192.0.2.1", "::ffff:192.0.2.1"}, []string{"192.0.2.2"}},
		"a mapped range":   {[]string{"::ffff:10.0.0.0/104", "::ffff:192.0.2.1"}, []string{"10.9.9.9", "192.0.2.1"}, []string{"192.0.2.2", "11.0.0.1"}},
		"bits of a host":   {[]string{"10.1.2.3/8"}, []string{"10.9.9.9"}, []string{"11.1.2.3"}},
		"unspecified only": {[]string{"unspecified"}, []string{"0.0.0.0", "::"}, []string{"127.0.0.1", "::1"}},
		// Linux connects 0.0.0.0 and :: to the host itself.
		"loopback only": {[]string{"loopback"}, []string{"127.0.0.1", "::1", "0.0.0.0", "::", "::ffff:0.0.0.0"}, []string{"169.254.0.1"}},
		"127.0.0.1":     {[]string{"127.0.0.1"}, []string{"0.0.0.0", "::"}, []string{"::1", "127.0.0.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse(t, tt.list...)
			for want, addresses := range map[bool][]string{true: tt.denied, false: tt.taken} {
				for _, text := range addresses {
					if got := p.DeniesAddress(netip.MustParseAddr(text)); got != want {
						t.Errorf("%s: denied %t", text, got)
					}
					if p.DeniesHost(text) != want {
						t.Errorf("%s as a host: denied %t", text, !want)
					}
				}
			}
		})
	}
	var nothing *Policy
	if nothing.DeniesAddress(netip.IPv6Loopback()) || nothing.DeniesHost("localhost") {
		t.Error("no policy denies")
	}
}

func TestParse(t *testing.T) {
	for text, ok := range map[string]bool{
		"10.0.0.0/8": true, "10.1.2.3": true, "fd00::/8": true, "::1": true, "::ffff:10.0.0.0/104": true, "loopback": true, "none": true,
		"metadata.google.internal": true, "*.internal": true, "Vault.example.test.": true, "a_b": true, "fe80::1%eth0": true,
		"": false, "*": false, "*.": false, "10.0.0.0/33": false, "10.0.0": false, "1.2.3.4.5": false, "a b": false, "a..b": false,
		"https://a": false, "a:80": false, "::ffff:0:0/90": false, "*.*.a": false, "*a": false, ".a": false, "a*": false, "[::1]": false, "ä": false,
		"LOOPBACK": true, "link_local": true, "0x7f.0.0.1": false, "0x7f000001": false, "10.0.0.0-10.0.0.9": false, "10.example.test": true,
		strings.Repeat("a", 64): false, strings.Repeat("a.", 127) + "a": false,
	} {
		if _, err := Parse([]string{text}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if p := parse(t, "Loopback", "LINK_LOCAL"); !p.DeniesHost("127.0.0.1") || !p.DeniesHost("169.254.169.254") {
		t.Error("a word in another spelling denies nothing")
	}
	if _, err := Parse([]string{"None", "10.0.0.0/8"}); err == nil {
		t.Error("none and more was accepted")
	}
}

func TestDeniesHostByName(t *testing.T) {
	p := parse(t, "metadata.google.internal", "*.svc.cluster.local")
	for host, denied := range map[string]bool{
		"metadata.google.internal": true, "METADATA.google.internal.": true, "vault.team.svc.cluster.local": true, "vault.team.svc.cluster.local.": true,
		"google.internal": false, "svc.cluster.local": false, "xsvc.cluster.local": false, "a.metadata.google.internal": false, "": false,
	} {
		if got := p.DeniesHost(host); got != denied {
			t.Errorf("%q: denied = %t", host, got)
		}
	}
}

// nameserver answers each query for an A record with the next address, and then
// with the last one again.
type nameserver struct {
	addresses []string
	asked     atomic.Int32
}

func (n *nameserver) start(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			size, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer := n.answer(buffer[:size]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (n *nameserver) answer(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		i := min(int(n.asked.Add(1)), len(n.addresses)) - 1
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(n.addresses[i]).As4()},
		}}
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}

// listen accepts connections on an IPv4 address and returns its port.
func listen(t *testing.T, address string) (port string, accepted *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp4", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	accepted = new(atomic.Int32)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			conn.Close()
		}
	}()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port, accepted
}

// What is dialled counts, whatever the name was, and nothing is connected to.
func TestDialerJudgesTheAddress(t *testing.T) {
	port, accepted := listen(t, "127.0.0.1")
	denying := parse(t, append(strings.Fields(Default), "denied.example.test")...)
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1", "0.0.0.0", "", "::", "denied.example.test"} {
		conn, err := denying.Dialer(net.Dialer{})(t.Context(), "tcp", net.JoinHostPort(host, port))
		if conn != nil {
			conn.Close()
		}
		if !errors.Is(err, ErrDenied) {
			t.Errorf("%q: %v", host, err)
		}
	}
	if n := accepted.Load(); n != 0 {
		t.Errorf("%d connections were opened", n)
	}
	for name, p := range map[string]*Policy{"no policy": nil, "none": parse(t, None), "another": parse(t, "10.0.0.0/8")} {
		conn, err := p.Dialer(net.Dialer{})(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		conn.Close()
	}
}

// A name whose answer changes: each dial is judged by what it connects to, and
// there is no look-up beside that of the dial.
func TestDialerJudgesEachAnswer(t *testing.T) {
	port, accepted := listen(t, "127.0.0.2")
	server := &nameserver{addresses: []string{"127.0.0.2", "127.0.0.1", "169.254.169.254", "127.0.0.2"}}
	dial := parse(t, "127.0.0.1", "link-local").Dialer(net.Dialer{Resolver: server.start(t), Timeout: 5 * time.Second})
	for i, denied := range []bool{false, true, true, false} {
		conn, err := dial(t.Context(), "tcp4", net.JoinHostPort("rebinding.example.test.", port))
		if conn != nil {
			conn.Close()
		}
		if errors.Is(err, ErrDenied) != denied || !denied && err != nil {
			t.Errorf("dial %d: %v, denied must be %t", i+1, err, denied)
		}
		if asked := int(server.asked.Load()); asked != i+1 {
			t.Errorf("dial %d: the name was looked up %d times in all", i+1, asked)
		}
	}
	for deadline := time.Now().Add(5 * time.Second); accepted.Load() < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if n := accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// A denied name is not even looked up.
func TestDialerLooksUpNoDeniedName(t *testing.T) {
	server := &nameserver{addresses: []string{"127.0.0.1"}}
	dial := parse(t, "*.example.test").Dialer(net.Dialer{Resolver: server.start(t)})
	if _, err := dial(t.Context(), "tcp4", "Secret.Example.Test.:443"); !errors.Is(err, ErrDenied) || server.asked.Load() != 0 {
		t.Errorf("%v after %d queries", err, server.asked.Load())
	}
}
