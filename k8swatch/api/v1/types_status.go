package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProxyKubeApiStatus is what the proxy says of the object (REC-3).
type ProxyKubeApiStatus struct {
	// exposed says whether the apiserver could be reached in the last round
	// (condition Reachable). It is written when it is false, too.
	// +optional
	Exposed bool `json:"exposed"`
	// path is the path of the cluster on the proxy, /clusters/<namespace>/<name>,
	// while it is enabled.
	// +nullable
	Path *string `json:"path,omitempty"`
	// error is the message of the condition Ready when it is not True, else of
	// UpdateRefused.
	// +nullable
	Error *string `json:"error,omitempty"`
	// observedGeneration is the generation of the spec that this status speaks
	// of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// observedBy is the installation of the proxy that wrote this status:
	// <namespace>/<Lease>. Another installation that serves the object too leaves
	// the status alone while it is younger than 15 minutes.
	ObservedBy string `json:"observedBy,omitempty"`
	// conditions are Ready, Reachable, and the notices that apply. At most 32.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// upstreamAuth says whether the apiserver honours the identity that the
	// proxy asserts.
	UpstreamAuth *UpstreamAuthStatus `json:"upstreamAuth,omitempty"`
}

// Trust is the verdict of a probe.
//
// +kubebuilder:validation:Enum=Trusted;Rejected;NotHonoured;Unknown
type Trust string

// The verdicts of a probe (TRUST-1).
const (
	// TrustTrusted: the apiserver saw the identity, the group and the extra.
	TrustTrusted Trust = "Trusted"
	// TrustRejected: the apiserver answered 401.
	TrustRejected Trust = "Rejected"
	// TrustNotHonoured: the apiserver saw another identity.
	TrustNotHonoured Trust = "NotHonoured"
	// TrustUnknown: the probe proved nothing.
	TrustUnknown Trust = "Unknown"
)

// UpstreamAuthStatus says whether the apiserver honours the proxy.
type UpstreamAuthStatus struct {
	// mode is the upstream mode that this status speaks of.
	Mode string `json:"mode,omitempty"`
	// trust is the verdict of the last probe: Trusted, Rejected, NotHonoured or
	// Unknown; absent when there is none, or none of the last 15 minutes.
	Trust Trust `json:"trust,omitempty"`
	// trustSince is when trust last changed.
	TrustSince *metav1.Time `json:"trustSince,omitempty"`
	// lastProbe is when the apiserver was last probed, at most five minutes
	// late.
	LastProbe *metav1.Time `json:"lastProbe,omitempty"`
	// clientCertSecret is the Secret, in the namespace of the proxy, that must
	// hold the front-proxy certificate.
	ClientCertSecret string `json:"clientCertSecret,omitempty"`
	// clientCertTarget is what the annotation
	// proxyauth.weebo.si.rs/front-proxy-target of that Secret must say.
	ClientCertTarget string `json:"clientCertTarget,omitempty"`
	// clientCertNotAfter is when the certificate in use expires.
	ClientCertNotAfter *metav1.Time `json:"clientCertNotAfter,omitempty"`
	// message says more about trust.
	Message string `json:"message,omitempty"`
}
