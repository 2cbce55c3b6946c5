package k8swatch

import (
	"slices"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
)

// The types of the conditions of a ProxyKubeApi (REC-6). A notice has its type
// as its reason.
const (
	ConditionReady              = "Ready"
	ConditionReachable          = "Reachable"
	ConditionFrontProxyNotReady = "FrontProxyNotReady"

	NoticeClientCertExpiring      = "ClientCertExpiring"
	NoticeClientCertRenewalFailed = "ClientCertRenewalFailed"
	NoticeReferenceStale          = "ReferenceStale"
	NoticeUpstreamTrustUnknown    = "UpstreamTrustUnknown"
	NoticeIssuerUnavailable       = "IssuerUnavailable"
	NoticeUpdateRefused           = "UpdateRefused"
	NoticeUnsupportedField        = "UnsupportedField"
)

// The reasons of Ready. The first that applies, in this order, is the reason of the
// condition.
const (
	ReasonDisabled                    = "Disabled"
	ReasonUpstreamModeUnknown         = "UpstreamModeUnknown"
	ReasonUpstreamModeNotAllowed      = "UpstreamModeNotAllowed"
	ReasonAudienceValidationRequired  = "AudienceValidationRequired"
	ReasonInvalidSpec                 = "InvalidSpec"
	ReasonServiceNotFound             = "ServiceNotFound"
	ReasonReferenceNotFound           = "ReferenceNotFound"
	ReasonClientCertIsIdentity        = "ClientCertIsIdentity"
	ReasonClientCertNameTooLong       = "ClientCertNameTooLong"
	ReasonClientCertMissing           = "ClientCertMissing"
	ReasonClientCertTargetMismatch    = "ClientCertTargetMismatch"
	ReasonClientCertSubjectReserved   = "ClientCertSubjectReserved"
	ReasonFrontProxyNotTrusted        = "FrontProxyNotTrusted"
	ReasonUpstreamIdentityNotHonoured = "UpstreamIdentityNotHonoured"
	ReasonUpstreamTrustUnknown        = "UpstreamTrustUnknown"
	ReasonServing                     = "Serving"
)

const (
	// MaxMessage bounds the message of a condition, in bytes: every condition of
	// an object is written and read together.
	MaxMessage = 4096
	// MaxQuoted bounds how much of a foreign text a message repeats, in
	// characters.
	MaxQuoted = 256
)

// ReasonPrepared is the reason of a FrontProxyNotReady that is False.
const ReasonPrepared = "Prepared"

// The reasons of Reachable (REC-6).
const (
	ReasonAnswered      = "Answered"
	ReasonConnectFailed = "ConnectFailed"
	ReasonTLSFailed     = "TLSFailed"
	ReasonServerError   = "ServerError"
	ReasonAgentAbsent   = "AgentAbsent"
)

// The statuses of a condition, as metav1.ConditionStatus spells them.
const (
	StatusTrue    = "True"
	StatusFalse   = "False"
	StatusUnknown = "Unknown"
)

// Notice makes a condition that is there while it applies and closes nothing.
func Notice(kind, message string) Condition {
	return Condition{Type: kind, Status: StatusTrue, Reason: kind, Message: text.OneLine(message, MaxMessage)}
}

// MergeByType sorts conditions by type and puts those of one type into one.
func MergeByType(all []Condition) []Condition {
	slices.SortStableFunc(all, func(a, b Condition) int { return strings.Compare(a.Type, b.Type) })
	var merged []Condition
	for _, c := range all {
		if last := len(merged) - 1; last >= 0 && merged[last].Type == c.Type {
			merged[last].Message = text.OneLine(merged[last].Message+"; "+c.Message, MaxMessage)
			continue
		}
		merged = append(merged, c)
	}
	return merged
}
