package request

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// check is one row of section 3 of docs/reference.md. It writes what it finds
// out into the Decision and has no other effect.
type check struct {
	name string
	run  func(*Request, *Decision) *Refusal
}

// checks are the rows in their order; the first that refuses decides. Row 14,
// this replica's own trust check, is made by Send.
var checks = [...]check{
	{"method", checkMethod},            // row 1
	{"early data", checkEarlyData},     // row 2
	{"configuration", checkLifetime},   // row 3
	{"clusters read", checkSynced},     // row 3
	{"cluster", checkCluster},          // row 4
	{"loop", checkLoop},                // row 5
	{"path", checkPath},                // row 6
	{"upgrade protocol", checkUpgrade}, // row 6
	// row 7 is the ban, which this version lacks
	{"readiness", checkReady},             // row 8
	{"authentication", authenticate},      // row 9
	{"forwarded identity", checkForward},  // row 10
	{"impersonation", checkImpersonation}, // row 11
	{"group", checkGroup},                 // row 12
	// row 13 is the quota, which this version lacks
}

func checkMethod(q *Request, _ *Decision) *Refusal {
	switch q.r.Method {
	case http.MethodConnect, http.MethodTrace:
		return methodNotAllowed
	}
	return nil
}

// checkEarlyData refuses what may be the replay of a request that an attacker has
// recorded: a request before the end of the TLS handshake, here or at a load
// balancer that ends TLS and says so with Early-Data. Any value of that header
// means 1 (RFC 8470, section 5.1). Reading may be repeated, but an upgrade reads
// nothing: exec over WebSocket is a GET and runs its command again.
func checkEarlyData(q *Request, _ *Decision) *Refusal {
	reads := q.r.Method == http.MethodGet || q.r.Method == http.MethodHead
	if reads && len(q.r.Header["Upgrade"]) == 0 {
		return nil
	}
	if q.r.TLS != nil && !q.r.TLS.HandshakeComplete || len(q.r.Header["Early-Data"]) > 0 {
		return tooEarly
	}
	return nil
}

// checkSynced loads the snapshot, once: a decision sees one version of its
// cluster.
func checkSynced(q *Request, d *Decision) *Refusal {
	if d.snapshot = q.config.Clusters.Snapshot(); d.snapshot == nil {
		return notSynced
	}
	return nil
}

// checkCluster finds the cluster that the request names and what is left of its
// path, both from the bytes the client sent (URL-1, URL-2).
func checkCluster(q *Request, d *Decision) *Refusal {
	target := targetOf(q.r)
	d.Path, d.query, d.inPath = target.path, target.query, q.name.InPath
	switch {
	case q.name.InPath:
		namespace, name, rest, ok := access.SplitClusterPath(target.path)
		if !ok {
			return unknownCluster
		}
		d.Key, d.Path = k8swatch.Key{Namespace: namespace, Name: name}, rest
	case q.name.Key == k8swatch.Key{}:
		return unknownCluster
	default:
		d.Key = q.name.Key
		if d.Path == "" {
			d.Path = "/"
		}
	}
	c := d.snapshot.Clusters[d.Key]
	if c == nil || !c.Spec.Enabled {
		return unknownCluster
	}
	d.Cluster = c
	return nil
}

func checkLoop(q *Request, d *Decision) *Refusal {
	if d.Cluster.Relay.IsLoop(q.r.Header["Via"]) {
		return loopDetected
	}
	return nil
}

// checkPath parses the path as kube-apiserver does (URL-4). Everything that
// decides on the path uses the result.
func checkPath(_ *Request, d *Decision) *Refusal {
	if hasSpace(d.Path) || hasSpace(d.query) {
		return spaceInTarget
	}
	path, err := access.ParsePath(d.Path)
	if err != nil {
		if access.IsDotSegment(err) {
			return dotSegment
		}
		return refuse(http.StatusBadRequest, "BadRequest", "bad_path", "the path is not well formed: "+err.Error())
	}
	d.parsed = path
	return nil
}

func checkUpgrade(q *Request, d *Decision) *Refusal {
	values := q.r.Header["Upgrade"]
	if len(values) == 0 || !httpguts.HeaderValuesContainsToken(q.r.Header["Connection"], "upgrade") {
		return nil
	}
	if len(values) == 1 {
		switch protocol := strings.ToLower(strings.TrimSpace(values[0])); protocol {
		case "websocket", "spdy/3.1":
			d.upgrade, d.upgradeHeader = protocol, values
			return nil
		}
	}
	return upgradeProtocol
}

// checkReady refuses when the cluster may not serve, or its apiserver was seen
// not to honour the proxy. It comes before any call to an identity provider.
// Package compile finds out why a cluster may not serve; the words of the answer
// are in refusal.go.
func checkReady(_ *Request, d *Decision) *Refusal {
	if d.Cluster.Closed != "" {
		return closed(d.Cluster.Spec.Mode, d.Cluster.Closed)
	}
	if reason := d.Cluster.Trust.ClosedReason(); reason != "" {
		return notTrusted(d.Cluster.Spec.Mode, reason)
	}
	return nil
}

// checkForward makes the identity that the apiserver is told. In Passthrough the
// apiserver makes its own of the bearer, so only a username that says nothing is
// refused, and an identity that was too large to keep.
func checkForward(_ *Request, d *Decision) *Refusal {
	if d.Identity == nil {
		return nil
	}
	refused := (*identity.Violation)(nil)
	if d.Cluster.Spec.Mode == v1.ModeFrontProxy {
		d.Forwarded, refused = d.result.Forward(d.Cluster.Settings)
	} else {
		refused = identity.CheckPassthrough(d.Identity)
	}
	if refused == nil {
		return nil
	}
	d.identityRefused = string(refused.Reason)
	// A refused value is written nowhere, the audit line included.
	d.Identity, d.Forwarded = nil, nil
	return refuse(http.StatusForbidden, forbiddenReason, "upstream_identity_refused", refused.Message())
}

// checkImpersonation decides what becomes of Impersonate-* headers (ID-6).
func checkImpersonation(q *Request, d *Decision) *Refusal {
	d.scrub.KeepCookies = q.config.KeepCookies
	if !identity.HasImpersonation(q.r.Header) {
		return nil
	}
	switch {
	case q.config.Impersonation == ImpersonationDeny:
		return impersonationDenied
	case q.config.Impersonation == ImpersonationForward && d.Cluster.Spec.Mode == v1.ModeFrontProxy:
		d.scrub.KeepImpersonation = true
		d.impersonation = identity.Impersonation(q.r.Header)
	default:
		d.stripped = true
	}
	return nil
}

func checkGroup(_ *Request, d *Decision) *Refusal {
	group := d.Cluster.Spec.RequiredGroup
	if group == "" || d.Identity != nil && access.InGroup(d.Identity.Groups, group) {
		return nil
	}
	return refuse(http.StatusForbidden, forbiddenReason, "not_in_group", "not a member of group "+group)
}
