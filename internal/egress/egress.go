package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// ErrDenied says that a connection would lead to a denied target. It names no
// address: the author of an object may see it, and would learn what a name of
// the proxy's network resolves to.
var ErrDenied = errors.New("the proxy does not connect there (denied_targets)")

// None is the word for an empty list.
const None = "none"

// Default is what no object reaches where tenants write the objects: the proxy's
// own host, and the services of its link.
const Default = "link-local loopback unspecified"

// words stand for ranges of addresses (RFC 1122 section 3.2.1.3, RFC 3927, RFC
// 4291 sections 2.5.2, 2.5.3 and 2.5.6).
var words = map[string][]string{
	"link-local":  {"169.254.0.0/16", "fe80::/10"},
	"loopback":    {"127.0.0.0/8", "::1/128"},
	"unspecified": {"0.0.0.0/8", "::/128"},
	None:          {},
}

// Policy is the list of denied targets. A nil Policy denies nothing. It is never
// changed, and safe for concurrent use.
type Policy struct {
	prefixes []netip.Prefix
	names    []string // lower case, without a final dot; ".x" for what ends so
}

// Parse reads a list of CIDRs, addresses, DNS names, names that begin with "*."
// and deny every name below, and the words of Default; None stands alone.
func Parse(list []string) (*Policy, error) {
	p := new(Policy)
	for _, text := range list {
		// As a name a word in another spelling would deny nothing.
		word := strings.ReplaceAll(strings.ToLower(text), "_", "-")
		if word == None && len(list) > 1 {
			return nil, fmt.Errorf("%s stands alone", None)
		}
		ranges, isWord := words[word]
		if !isWord {
			ranges = []string{text}
		}
		for _, r := range ranges {
			if err := p.add(r); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

func (p *Policy) add(text string) error {
	if prefix, err := parsePrefix(text); err == nil {
		p.prefixes = append(p.prefixes, prefix)
		return nil
	}
	name, below := strings.CutPrefix(canonicalName(text), "*.")
	if !isName(name) {
		return fmt.Errorf("%q is not a CIDR, an address, a name, *. and a name, loopback, link-local, unspecified or %s", text, None)
	}
	if below {
		name = "." + name
	}
	p.names = append(p.names, name)
	return nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil // without the zone
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, err
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return prefix, errors.New("an IPv4-mapped prefix has 96 bits or more")
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}

func canonicalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// isName accepts what can be looked up as a name. A typing error in an address
// (10.0.0, 0x7f.0.0.1, 10.0.0.0-10.0.0.9) is no name, since it would deny nothing:
// the last label of a name begins with no digit.
func isName(name string) bool {
	if last := name[strings.LastIndexByte(name, '.')+1:]; last == "" || '0' <= last[0] && last[0] <= '9' {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range label {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return len(name) <= 253
}

// DeniesHost reports whether the host of a URL is denied as it is written: by
// its name, or by the address that it is. The address behind a name is judged
// when it is dialled.
func (p *Policy) DeniesHost(host string) bool {
	if p == nil {
		return false
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return p.DeniesAddress(address)
	}
	host = canonicalName(host)
	for _, name := range p.names {
		if host == name || name[0] == '.' && strings.HasSuffix(host, name) {
			return true
		}
	}
	return false
}

// DeniesAddress reports whether an address is denied, in any of its spellings.
func (p *Policy) DeniesAddress(address netip.Addr) bool {
	return p != nil && slices.ContainsFunc(meanings(address), func(meant netip.Addr) bool {
		return slices.ContainsFunc(p.prefixes, func(denied netip.Prefix) bool { return denied.Contains(meant) })
	})
}

// meanings are the addresses that a connection to an address may reach.
func meanings(address netip.Addr) []netip.Addr {
	address = address.WithZone("").Unmap()
	all := []netip.Addr{address}
	if embedded, ok := embeddedIPv4(address); ok {
		all = append(all, embedded)
	}
	if address.IsUnspecified() {
		// A connection to it reaches the host itself, as one to loopback does.
		all = append(all, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	}
	return all
}

// embeddings are the prefixes whose addresses hold an IPv4 address, and at which
// byte.
var embeddings = [...]struct {
	prefix string
	at     int
}{
	{"64:ff9b::/96", 12},    // NAT64, RFC 6052 section 2.1
	{"64:ff9b:1::/48", 12},  // local NAT64 with a /96, RFC 8215
	{"2002::/16", 2},        // 6to4, RFC 3056 section 2
	{"::ffff:0:0:0/96", 12}, // IPv4-translated, RFC 2765 section 2.1
	{"::/96", 12},           // IPv4-compatible, RFC 4291 section 2.5.5.1
}

func embeddedIPv4(address netip.Addr) (netip.Addr, bool) {
	if !address.Is6() || address == netip.IPv6Loopback() {
		return address, false
	}
	bytes := address.As16()
	for _, e := range embeddings {
		if netip.MustParsePrefix(e.prefix).Contains(address) {
			return netip.AddrFrom4([4]byte(bytes[e.at : e.at+4])), true
		}
	}
	return address, false
}

// Dialer returns d, held to the policy. It refuses a denied name before it is
// looked up, and a denied address before the connection is opened.
func (p *Policy) Dialer(d net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	if p == nil {
		return d.DialContext
	}
	d.ControlContext = p.control
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(address); err == nil && p.DeniesHost(host) {
			return nil, ErrDenied
		}
		return d.DialContext(ctx, network, address)
	}
}

// control is a net.Dialer.ControlContext: net calls it with each address that it
// is about to connect to.
func (p *Policy) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || p.DeniesAddress(at.Addr()) {
		return ErrDenied
	}
	return nil
}
