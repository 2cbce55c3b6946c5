package serving

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Relay is how the requests of a cluster get to its apiserver.
type Relay struct {
	// Pair is the connections, nil while the cluster may not serve.
	Pair *upstream.Pair
	// Streams are the open streams, nil for a disabled cluster.
	Streams *upstream.Group

	credential string // that Pair presents, and to which target
	// via is the pseudonym of the cluster in Via headers (URL-6); viaHTTP1 and
	// viaHTTP2 are the entry of nearly all requests, shared between them.
	via                string
	viaHTTP1, viaHTTP2 []string
}

// NewRelay makes a Relay without connections.
func NewRelay(spec *k8swatch.Cluster, streams *upstream.Group) Relay {
	// The same on every replica.
	sum := sha256.Sum256([]byte(spec.Key.String() + "\n" + spec.Target.Canonical))
	via := "proxyauth-" + hex.EncodeToString(sum[:8])
	return Relay{Streams: streams, via: via, viaHTTP1: []string{"1.1 " + via}, viaHTTP2: []string{"2.0 " + via}}
}

// connect takes over the connections of the version before while they present
// the same credential to the same target, and makes new ones otherwise.
func (r *Relay) connect(spec *k8swatch.Cluster, old Relay) {
	r.credential = spec.CredentialID()
	if old.Pair != nil && old.credential == r.credential {
		r.Pair = old.Pair
		return
	}
	r.Pair = trust.Connect(spec, spec.Presented())
}

func (r *Relay) retire(next Relay) {
	if r.Pair != nil && next.Pair != r.Pair {
		r.Pair.Retire()
	}
}

// IsLoop reports whether a request with these Via headers already came through
// this cluster.
func (r *Relay) IsLoop(values []string) bool {
	for _, value := range values {
		for entry := range strings.SplitSeq(value, ",") {
			_, by := cutSpace(entry)
			if by, _ = cutSpace(by); by == r.via {
				return true
			}
		}
	}
	return false
}

// cutSpace cuts at the first white space (RFC 9110, section 5.6.3).
func cutSpace(s string) (before, after string) {
	s = strings.Trim(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// SetVia puts the cluster's own entry in place of Caddy's, which reverse_proxy
// has added last (URL-6). The version is that of the client's request.
func (r *Relay) SetVia(h http.Header, major, minor int) {
	var protocol string
	var own []string
	switch {
	case major == 1 && minor == 1:
		protocol, own = "1.1", r.viaHTTP1
	case major == 2 && minor == 0:
		protocol, own = "2.0", r.viaHTTP2
	default:
		protocol = strconv.Itoa(major) + "." + strconv.Itoa(minor)
		own = []string{protocol + " " + r.via}
	}
	values := h["Via"]
	if n := len(values); n > 0 && isCaddysVia(values[n-1], protocol) {
		values = values[:n-1]
	}
	if len(values) > 0 {
		own = append(values[:len(values):len(values)], own...)
	}
	h["Via"] = own
}

func isCaddysVia(entry, protocol string) bool {
	rest, ok := strings.CutPrefix(entry, protocol)
	return ok && rest == " Caddy"
}
