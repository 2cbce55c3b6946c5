package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// ErrDenied says that a connection leads to where the proxy admin lets no object
// lead. It names no address, since authors of objects may see it.
var ErrDenied = errors.New("the proxy does not connect there (denied_targets)")

// Default is what no object reaches where the objects are written by tenants:
// the proxy's own host, and the services of its link (RFC 1122 section 3.2.1.3,
// RFC 3927, RFC 4291 sections 2.5.2, 2.5.3 and 2.5.6).
func Default() []string {
	return []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "::/128", "::1/128", "fe80::/10"}
}

// Policy is the list of denied targets. A nil Policy denies nothing. It is never
// changed, and safe for concurrent use.
type Policy struct {
	prefixes []netip.Prefix
	names    []string // lower case, without a trailing dot; ".x" for what ends so
}

// Parse reads a list of CIDRs, addresses and DNS names. A name that begins with
// "*." denies every name below it.
func Parse(list []string) (*Policy, error) {
	p := new(Policy)
	for _, text := range list {
		if prefix, err := parsePrefix(text); err == nil {
			p.prefixes = append(p.prefixes, prefix)
			continue
		}
		name := canonicalName(text)
		if wild, ok := strings.CutPrefix(name, "*."); ok {
			name = "." + wild
		}
		if !isName(strings.TrimPrefix(name, ".")) {
			return nil, fmt.Errorf("denied target %q: must be a CIDR, an address, a name, or *. and a name", text)
		}
		p.names = append(p.names, name)
	}
	return p, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		address = address.Unmap().WithZone("")
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, err
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return prefix, errors.New("an IPv4-mapped prefix must have 96 bits or more")
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}

func canonicalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// isName takes what may be looked up as a name. What begins like an address and
// is none is a slip that must not pass for one.
func isName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	digits := true
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := 0; i < len(label); i++ {
			c := label[i]
			letter := 'a' <= c && c <= 'z' || c == '-' || c == '_'
			if !letter && (c < '0' || c > '9') {
				return false
			}
			digits = digits && !letter
		}
	}
	return !digits
}

// DeniesName reports whether a host, as an object writes it, is denied by name.
func (p *Policy) DeniesName(host string) bool {
	if p == nil {
		return false
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
	if p == nil {
		return false
	}
	address = address.WithZone("").Unmap()
	if p.contains(address) {
		return true
	}
	embedded, ok := embeddedIPv4(address)
	return ok && p.contains(embedded)
}

func (p *Policy) contains(address netip.Addr) bool {
	for _, prefix := range p.prefixes {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// The prefixes whose addresses hold an IPv4 address, and where in bytes.
var embeddings = [...]struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},   // NAT64, RFC 6052 section 2.1
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12}, // local NAT64 with a /96, RFC 8215
	{netip.MustParsePrefix("2002::/16"), 2},       // 6to4, RFC 3056 section 2
	{netip.MustParsePrefix("::/96"), 12},          // IPv4-compatible, RFC 4291 section 2.5.5.1
}

func embeddedIPv4(address netip.Addr) (netip.Addr, bool) {
	if !address.Is6() {
		return address, false
	}
	bytes := address.As16()
	for _, e := range embeddings {
		if e.prefix.Contains(address) {
			return netip.AddrFrom4([4]byte(bytes[e.at : e.at+4])), true
		}
	}
	return address, false
}

// Control is a net.Dialer.ControlContext: it refuses a denied address before
// the connection is opened.
func (p *Policy) Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	if p == nil {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || p.DeniesAddress(at.Addr()) {
		return ErrDenied
	}
	return nil
}

// Dialer returns d with the policy: names are looked at before the look-up, and
// addresses after it.
func (p *Policy) Dialer(d net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	if p != nil {
		d.ControlContext = p.Control
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(address); err == nil && p.DeniesName(host) {
			return nil, ErrDenied
		}
		return d.DialContext(ctx, network, address)
	}
}
