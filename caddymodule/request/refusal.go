package request

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// maxWarning is the longest Warning header the proxy writes, in bytes (ANS-1).
const maxWarning = 512

// Reasons of a Status.
const (
	forbiddenReason    = metav1.StatusReasonForbidden
	unauthorizedReason = metav1.StatusReasonUnauthorized
	unavailableReason  = metav1.StatusReasonServiceUnavailable

	// apimachinery has no constants for these.
	badGatewayReason metav1.StatusReason = "BadGateway"
)

// Refusal is an answer that the proxy makes itself. Its message reaches the
// client and the audit line, so it never holds a credential or a refused value.
type Refusal struct {
	Code    int
	Reason  metav1.StatusReason
	Message string
	// Audit is the machine-readable reason of the audit line (SIG-2).
	Audit string
	// Audited follows the message in the audit line, which the caller does not see.
	Audited string
	// Detail is for the log alone.
	Detail string
	// Allow lists the methods of a 405 (RFC 9110 section 15.5.6).
	Allow string
	// RetryAfter is sent with a 429 and with no other code: client-go follows
	// the header of a 503 ten times (ANS-2).
	RetryAfter time.Duration
}

// Error makes a Refusal usable as an error between transport and handler.
func (r *Refusal) Error() string { return r.Message }

func refuse(code int, reason metav1.StatusReason, audit, message string) *Refusal {
	return &Refusal{Code: code, Reason: reason, Audit: audit, Message: message}
}

func unavailable(audit, message string) *Refusal {
	return refuse(http.StatusServiceUnavailable, unavailableReason, audit, message)
}

func badGateway(audit, message string) *Refusal {
	return refuse(http.StatusBadGateway, badGatewayReason, audit, message)
}

// The answers that are the same for every request.
var (
	methodNotAllowed = &Refusal{
		Code: http.StatusMethodNotAllowed, Reason: "MethodNotAllowed", Audit: "method_not_allowed", Message: "the method is not allowed",
		Allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
	}
	tooEarly = refuse(http.StatusTooEarly, "TooEarly", "early_data",
		"the request came as early data and may be a replay: send it again")
	notSynced        = unavailable("not_synced", "the proxy has not read its clusters yet")
	oldConfiguration = unavailable("old_configuration",
		"the proxy has a new configuration since this connection was opened: send the request again on a new one")
	unknownCluster = refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "unknown_cluster", "the proxy has no such cluster")
	loopDetected   = refuse(http.StatusLoopDetected, "LoopDetected", "loop",
		"the request came back to this cluster through the proxy: its apiserver address leads here")
	spaceInTarget   = refuse(http.StatusBadRequest, "BadRequest", "bad_path", "the request target has a space")
	dotSegment      = refuse(http.StatusBadRequest, "BadRequest", "dot_segment", "the path has a dot segment")
	upgradeProtocol = refuse(http.StatusBadRequest, "BadRequest", "upgrade_protocol",
		"an upgrade to this protocol is not relayed: only websocket and SPDY/3.1 are")
	clientClosedRequest = refuse(serving.StatusClientClosedRequest, "ClientClosedRequest", "client_closed", "the client closed the request")
	providerUnavailable = unavailable("idp_unavailable", "the identity provider cannot be asked")
	impersonationDenied = refuse(http.StatusForbidden, forbiddenReason, "impersonation_denied", "impersonation is not allowed through this proxy")

	// The cluster ended before its apiserver answered, or before anything was sent.
	clusterRemoved = unavailable("cluster_removed", "the cluster was removed from the proxy, or moved, before it answered")
	clusterMoved   = unavailable("cluster_removed", "the cluster was removed from the proxy, or moved, before the request was sent")

	upstreamRejected = badGateway("upstream_rejected",
		"the cluster does not trust this proxy: its apiserver refused the asserted identity; logging in again does not help")
	invalidStatus   = badGateway("invalid_status", "the cluster's apiserver sent a status that is not a valid answer")
	foreignRedirect = badGateway("foreign_redirect", "the cluster's apiserver redirects to another place, where clients would repeat the request")
	backlogged      = refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "backlog", access.ErrBacklog.Error())
	notRelayed      = badGateway("not_relayed",
		"the proxy is not configured to relay this request: a reverse_proxy with the proxyauth transport must follow")

	// BodyTooLarge answers a body over the limit of the site.
	BodyTooLarge = refuse(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "body_too_large", "request body too large")
	// NotDecided answers a request that comes to the transport without a
	// decision.
	NotDecided = badGateway("not_decided",
		"the proxy did not decide on this request: proxyauth_authenticate must come before the proxyauth transport")
	// ForeignUpstream answers a request for an upstream that the proxyauth
	// dynamic upstreams did not name.
	ForeignUpstream = badGateway("foreign_upstream",
		"the proxy is not configured to relay this request: the proxyauth transport serves only the upstream that its dynamic source named")

	impersonationIgnored = warning("the Impersonate-* headers were ignored: the proxy does not forward impersonation to this cluster")
)

// TooManyRequests is a 429 that tells the client when to come back, in whole
// seconds, at least one.
func TooManyRequests(audit, message string, after time.Duration) *Refusal {
	r := refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, audit, message)
	r.RetryAfter = max(after, time.Second)
	return r
}

// closed is row 8 for a cluster that may not serve whatever its apiserver does.
func closed(mode v1.UpstreamMode, reason string) *Refusal {
	switch reason {
	case k8swatch.ReasonUpstreamModeUnknown:
		return unavailable("mode_unknown", "this proxy replica cannot serve upstream mode "+modeText(mode)+" yet")
	case k8swatch.ReasonUpstreamModeNotAllowed:
		return unavailable("mode_not_enabled", "upstream mode "+modeText(mode)+" is not enabled on this proxy installation")
	case k8swatch.ReasonAudienceValidationRequired:
		return unavailable("audience_validation", "upstream mode "+modeText(mode)+" requires OIDC audience validation")
	}
	return unavailable("not_ready", notReadyText(mode, reason))
}

// notTrusted refuses because of what the apiserver makes of the proxy's
// certificate.
func notTrusted(mode v1.UpstreamMode, reason string) *Refusal {
	return unavailable("upstream_trust", notReadyText(mode, reason))
}

func notReadyText(mode v1.UpstreamMode, reason string) string {
	if mode == v1.ModeFrontProxy {
		return "this cluster is not ready for upstream mode FrontProxy: " + reason
	}
	return "this cluster is not ready: " + reason
}

// maxModeText bounds a mode this version does not know: the object's author
// chose it, and it goes into answers and the audit line.
const maxModeText = 64

func modeText(mode v1.UpstreamMode) string {
	if len(mode) <= maxModeText {
		return string(mode)
	}
	if runes := []rune(string(mode)); len(runes) > maxModeText {
		return string(runes[:maxModeText]) + "…"
	}
	return string(mode)
}

// ofFailure is the 502 for an apiserver that gave no answer.
func ofFailure(f upstream.Failure) *Refusal {
	r := badGateway(f.Reason, f.Message)
	r.Detail = f.Detail
	return r
}

// ofReview answers when the apiserver gave no verdict on a token.
func ofReview(f *authn.ReviewFailure) *Refusal {
	switch {
	case f.Err != nil:
		return ofFailure(upstream.Describe(f.Err))
	case f.Status == http.StatusBadGateway:
		return badGateway(f.Reason, f.Message)
	}
	return unavailable(f.Reason, f.Message)
}

// status renders the refusal as the v1 Status every Kubernetes client decodes.
func (r *Refusal) status() []byte {
	b, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  r.Message,
		Reason:   r.Reason,
		Code:     int32(r.Code),
	})
	if err != nil {
		// A Status of strings and numbers always marshals.
		panic(err)
	}
	return append(b, '\n')
}

// header sets what belongs to the refusal besides its body.
func (r *Refusal) header(h http.Header, length int) {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(length))
	h.Set("Cache-Control", "no-cache, private")
	h.Add("Warning", warning(r.Message))
	switch r.Code {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests:
		if r.RetryAfter > 0 {
			seconds := (r.RetryAfter + time.Second - 1) / time.Second
			h.Set("Retry-After", strconv.Itoa(int(seconds)))
		}
	}
	if r.Allow != "" {
		h.Set("Allow", r.Allow)
	}
}

// Write sends the refusal at once, without waiting for the request's body
// (ANS-3). A connection whose body was not read cannot carry another request.
func (r *Refusal) Write(w http.ResponseWriter, req *http.Request) error {
	if req.ProtoMajor == 1 && HasBody(req) {
		w.Header().Set("Connection", "close")
	}
	body := r.status()
	r.header(w.Header(), len(body))
	w.WriteHeader(r.Code)
	_, err := w.Write(body)
	return err
}

// HasBody reports whether a body came with a request. Caddy wraps the body of
// a request without one as well, so only the length tells.
func HasBody(req *http.Request) bool { return req.ContentLength != 0 }

// warning renders a message as a Warning header value (RFC 7234 section 5.5),
// which kubectl prints even where it hides the Status: printable ASCII with a
// question mark for every other character, and at most 512 bytes.
func warning(message string) string {
	const prefix, suffix = `299 - "proxyauth: `, `"`
	var b strings.Builder
	b.Grow(len(prefix) + len(message) + len(suffix))
	b.WriteString(prefix)
	for _, c := range message {
		piece := "?"
		switch {
		case c == '"' || c == '\\':
			piece = `\` + string(c)
		case c >= 0x20 && c <= 0x7e:
			piece = string(c)
		}
		if b.Len()+len(piece)+len(suffix) > maxWarning {
			break
		}
		b.WriteString(piece)
	}
	b.WriteString(suffix)
	return b.String()
}
