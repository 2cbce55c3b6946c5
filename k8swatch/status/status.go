package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// maxTrustAge is how old a verdict in a status may be.
	maxTrustAge = 15 * time.Minute
	// lastProbeInterval is how often lastProbe is written while the verdict
	// stays the same: each write goes to every watcher (REC-4).
	lastProbeInterval = 5 * time.Minute
	// maxTrustMessage bounds the text about who the apiserver saw, in characters.
	maxTrustMessage = 256
)

// TrustState is the verdict of the last probe of a cluster, since when it is that
// verdict, and when it was last confirmed. The zero value is a cluster that was
// not probed.
type TrustState struct {
	Trust     v1.Trust
	Since     time.Time
	LastProbe time.Time
	Message   string
	// ClientCertIsIdentity is the user that the apiserver sees in the client_cert
	// of a cluster in Passthrough (CERT-9); empty while no such user is known.
	ClientCertIsIdentity string
	// Unproven is why this replica lets no request pass although no check refused
	// the certificate: no check ever gave the proof. Empty while requests may pass.
	Unproven string
}

// Told is the verdict as a status may show it at that time: none without a probe,
// and none that is older than 15 minutes (TRUST-1).
func (t TrustState) Told(now time.Time) v1.Trust {
	if t.LastProbe.IsZero() || now.Sub(t.LastProbe) > maxTrustAge {
		return ""
	}
	return t.Trust
}

// Input is everything a status is made from.
type Input struct {
	Cluster *k8swatch.Cluster
	Trust   TrustState
	// Notices are those of the runtime, such as IssuerUnavailable.
	Notices []k8swatch.Condition
	// Reachable is nil while it is not known. The status then keeps the condition
	// that it has.
	Reachable *k8swatch.Condition
	// ObservedBy is this installation, <namespace>/<Lease> (REC-8); empty with a
	// directory.
	ObservedBy string
	// Previous is the status that the object has, nil for none.
	Previous *v1.ProxyKubeApiStatus
	Now      time.Time
}

// EffectiveReady is Ready with the trust reasons (section 7 of the reference):
// what the status says and what a request meets. A verdict never opens what
// the object itself closes. Age plays no part, since a set that a verdict
// closed is opened by Trusted only (TRUST-4). Ready is Unknown where the proof is
// missing that opens the cluster: who waits for Ready waits until requests are
// served (REC-5).
func EffectiveReady(c *k8swatch.Cluster, t TrustState) k8swatch.Condition {
	if c.Ready.Status != k8swatch.StatusTrue {
		return c.Ready
	}
	if c.Mode == v1.ModeFrontProxy {
		if refused, ok := trustRefusal(t); ok {
			return refused
		}
	} else if c.ClientCert != nil && t.ClientCertIsIdentity != "" {
		return k8swatch.Condition{Type: k8swatch.ConditionReady, Status: k8swatch.StatusFalse, Reason: k8swatch.ReasonClientCertIsIdentity, Message: t.ClientCertIsIdentity}
	}
	if t.Unproven != "" {
		return k8swatch.Condition{Type: k8swatch.ConditionReady, Status: k8swatch.StatusUnknown, Reason: k8swatch.ReasonUpstreamTrustUnknown,
			Message: "requests are answered 503 until a check of the apiserver succeeds: " + t.Unproven}
	}
	return c.Ready
}

// trustRefusal is what a verdict makes of Ready, if anything.
func trustRefusal(t TrustState) (k8swatch.Condition, bool) {
	ready := k8swatch.Condition{Type: k8swatch.ConditionReady, Status: k8swatch.StatusFalse}
	switch t.Trust {
	case v1.TrustRejected:
		ready.Reason, ready.Message = k8swatch.ReasonFrontProxyNotTrusted, "the apiserver answered 401 to the proxy's certificate"
	case v1.TrustNotHonoured:
		ready.Reason, ready.Message = k8swatch.ReasonUpstreamIdentityNotHonoured, "the apiserver does not honour the asserted identity"
	default:
		return k8swatch.Condition{}, false
	}
	if t.Message != "" {
		ready.Message = trustMessage(t)
	}
	return ready, true
}

// TrustRefusal returns the reason that a status gives for Ready, when it
// is one that only asking the apiserver can give: a trust reason, or
// ClientCertIsIdentity. It may close a cluster on a replica that did not probe
// itself; nothing in a status may open one, since others than the proxy can
// write it (TRUST-4).
func TrustRefusal(status *v1.ProxyKubeApiStatus) (k8swatch.Condition, bool) {
	if status == nil {
		return k8swatch.Condition{}, false
	}
	for _, c := range status.Conditions {
		if c.Type != k8swatch.ConditionReady || c.Status != metav1.ConditionFalse {
			continue
		}
		switch c.Reason {
		case k8swatch.ReasonFrontProxyNotTrusted, k8swatch.ReasonUpstreamIdentityNotHonoured, k8swatch.ReasonClientCertIsIdentity:
			return k8swatch.Condition{Type: c.Type, Status: k8swatch.StatusFalse, Reason: c.Reason, Message: text.OneLine(c.Message, k8swatch.MaxMessage)}, true
		}
	}
	return k8swatch.Condition{}, false
}

// Build makes the status of a cluster (REC-3). It is a pure function; while
// nothing changes its result equals Previous, see Same.
func Build(in Input) *v1.ProxyKubeApiStatus {
	c := in.Cluster
	if p := in.Previous; p != nil && p.ObservedBy != "" && p.ObservedBy != in.ObservedBy {
		in.Previous = nil // its times are about what another installation saw
	}
	conditions := statusConditions(in)
	status := &v1.ProxyKubeApiStatus{
		ObservedGeneration: c.Generation,
		ObservedBy:         in.ObservedBy,
		Conditions:         conditions,
		UpstreamAuth:       upstreamAuthStatus(in),
	}
	if c.Enabled {
		path := "/clusters/" + c.Key.Namespace + "/" + c.Key.Name
		status.Path = &path
	}
	for _, condition := range conditions {
		switch {
		case condition.Type == k8swatch.ConditionReady && condition.Status != metav1.ConditionTrue:
			status.Error = &condition.Message
		case condition.Type == k8swatch.NoticeUpdateRefused && status.Error == nil:
			status.Error = &condition.Message
		case condition.Type == k8swatch.ConditionReachable:
			status.Exposed = condition.Status == metav1.ConditionTrue
		}
	}
	return status
}

// Same says whether writing b over a would change nothing.
func Same(a, b *v1.ProxyKubeApiStatus) bool { return equality.Semantic.DeepEqual(a, b) }

// statusConditions are Ready, then the rest by type.
func statusConditions(in Input) []metav1.Condition {
	c := in.Cluster
	rest := slices.Concat(c.Notices, in.Notices)
	if c.Mode == v1.ModeFrontProxy && verdict(in) == v1.TrustUnknown {
		rest = append(rest, k8swatch.Notice(k8swatch.NoticeUpstreamTrustUnknown, cmp.Or(trustMessage(in.Trust), "the probe did not conclude")))
	}
	if c.Preparing {
		rest = append(rest, preparation(in))
	}
	rest = k8swatch.MergeByType(rest)
	out := []metav1.Condition{in.timed(EffectiveReady(c, in.Trust))}
	for _, condition := range rest {
		out = append(out, in.timed(condition))
	}
	if reachable := in.reachable(); reachable != nil {
		out = append(out, *reachable)
	}
	slices.SortStableFunc(out[1:], func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return out
}

// timed gives a condition its time, which moves only with its status.
func (in Input) timed(c k8swatch.Condition) metav1.Condition {
	out := metav1.Condition{
		Type:               c.Type,
		Status:             metav1.ConditionStatus(c.Status),
		Reason:             c.Reason,
		Message:            text.OneLine(c.Message, k8swatch.MaxMessage),
		ObservedGeneration: in.Cluster.Generation,
		LastTransitionTime: statusTime(in.Now),
	}
	if p := in.previous(c.Type); p != nil && p.Status == out.Status && !p.LastTransitionTime.IsZero() {
		out.LastTransitionTime = p.LastTransitionTime
	}
	return out
}

func (in Input) previous(kind string) *metav1.Condition {
	if in.Previous == nil {
		return nil
	}
	for i := range in.Previous.Conditions {
		if in.Previous.Conditions[i].Type == kind {
			return &in.Previous.Conditions[i]
		}
	}
	return nil
}

// reachable is the condition Reachable. It is absent for a disabled cluster, and
// while the target or the CA is not known: then the proxy does not ask.
func (in Input) reachable() *metav1.Condition {
	switch {
	case !in.Cluster.Enabled:
		return nil
	case in.Reachable != nil:
		c := in.timed(*in.Reachable)
		return &c
	case !in.Cluster.TargetKnown:
		return nil // there is no address to ask
	}
	previous := in.previous(k8swatch.ConditionReachable)
	if previous == nil || !isReachableReason(previous.Reason) {
		return nil // the proxy did not write it
	}
	return previous
}

func isReachableReason(reason string) bool {
	switch reason {
	case k8swatch.ReasonAnswered, k8swatch.ReasonConnectFailed, k8swatch.ReasonTLSFailed, k8swatch.ReasonServerError, k8swatch.ReasonAgentAbsent:
		return true
	}
	return false
}

// preparation lists all that would stop FrontProxy (REC-7). A verdict is
// missing only where there could be one.
func preparation(in Input) k8swatch.Condition {
	c := in.Cluster
	missing := slices.Clone(c.Missing)
	if c.Probe {
		refused, ok := trustRefusal(in.Trust)
		switch trust := verdict(in); {
		case ok:
			missing = append(missing, refused)
		case trust == v1.TrustUnknown:
			missing = append(missing, k8swatch.Condition{Reason: k8swatch.NoticeUpstreamTrustUnknown, Message: cmp.Or(trustMessage(in.Trust), "the probe did not conclude")})
		case trust != v1.TrustTrusted:
			missing = append(missing, k8swatch.Condition{Reason: k8swatch.NoticeUpstreamTrustUnknown, Message: "no verdict of the last 15 minutes"})
		}
	}
	if len(missing) == 0 {
		return k8swatch.Condition{Type: k8swatch.ConditionFrontProxyNotReady, Status: k8swatch.StatusFalse, Reason: k8swatch.ReasonPrepared,
			Message: "nothing stops upstream mode FrontProxy"}
	}
	var texts []string
	for _, m := range missing {
		texts = append(texts, m.Reason+": "+m.Message)
	}
	return k8swatch.Notice(k8swatch.ConditionFrontProxyNotReady, strings.Join(texts, "; "))
}

// verdict is the trust that the status shows: none without a certificate.
func verdict(in Input) v1.Trust {
	if in.Cluster.FrontProxy == nil {
		return ""
	}
	return in.Trust.Told(in.Now)
}

// upstreamAuthStatus has only the mode for a cluster that neither is in FrontProxy
// nor prepares it.
func upstreamAuthStatus(in Input) *v1.UpstreamAuthStatus {
	c := in.Cluster
	out := &v1.UpstreamAuthStatus{
		Mode:             text.OneLine(string(c.Mode), k8swatch.MaxMode),
		ClientCertSecret: c.ClientCertSecret,
		ClientCertTarget: c.ClientCertTarget,
	}
	if c.FrontProxy != nil {
		out.ClientCertNotAfter = timePointer(c.FrontProxy.Leaf.NotAfter)
	}
	trust := verdict(in)
	if trust == "" {
		return out
	}
	out.Trust = trust
	out.TrustSince, out.LastProbe = timePointer(in.Trust.Since), timePointer(in.Trust.LastProbe)
	out.Message = trustMessage(in.Trust)
	if in.Previous == nil || in.Previous.UpstreamAuth == nil || in.Previous.UpstreamAuth.Trust != trust {
		return out
	}
	// The same verdict as before: a new leader does not know since when, and
	// a date alone is no reason to write.
	previous := in.Previous.UpstreamAuth
	if previous.TrustSince != nil && previous.TrustSince.Time.Before(in.Trust.Since) {
		out.TrustSince = previous.TrustSince
	}
	if p := previous.LastProbe; p != nil && !p.Time.After(in.Trust.LastProbe) && in.Trust.LastProbe.Sub(p.Time) < lastProbeInterval {
		out.LastProbe = p
	}
	return out
}

// trustMessage is the text of the prober, which quotes names that the apiserver
// sent.
func trustMessage(t TrustState) string {
	return text.Cut(text.OneLine(t.Message, k8swatch.MaxMessage), maxTrustMessage)
}

// statusTime has the resolution that the API keeps.
func statusTime(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

func timePointer(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	out := statusTime(t)
	return &out
}
