package k8swatch

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

// The reasons of Ready, in the order in which the first that applies is told.
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
	ReasonServing                     = "Serving"
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

var reachableReasons = []string{ReasonAnswered, ReasonConnectFailed, ReasonTLSFailed, ReasonServerError, ReasonAgentAbsent}

// The statuses of a condition, as metav1.ConditionStatus spells them.
const (
	StatusTrue    = "True"
	StatusFalse   = "False"
	StatusUnknown = "Unknown"
)

// notice makes a condition that is there while it applies and closes nothing.
func notice(kind, message string) Condition {
	return Condition{Type: kind, Status: StatusTrue, Reason: kind, Message: bounded(message, maxMessage)}
}
