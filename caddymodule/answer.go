package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxWarning is the longest Warning header the proxy writes, in bytes (ANS-1).
const maxWarning = 512

// Reasons of a Status for which apimachinery has no constant.
const (
	reasonTooEarly     metav1.StatusReason = "TooEarly"
	reasonBadGateway   metav1.StatusReason = "BadGateway"
	reasonLoopDetected metav1.StatusReason = "LoopDetected"
)

// refusal is an answer the proxy makes itself. Its message reaches the client
// and the audit line, so it never holds a credential or a refused value.
type refusal struct {
	code    int
	reason  metav1.StatusReason
	message string
	// audit is the machine-readable reason of the audit line (SIG-2).
	audit string
	// detail is for the log alone.
	detail string
	// allow lists the methods of a 405 (RFC 9110 section 15.5.6).
	allow string
}

// Error makes a refusal usable as an error between transport and handler.
func (r *refusal) Error() string { return r.message }

func refuse(code int, reason metav1.StatusReason, audit, format string, args ...any) *refusal {
	return &refusal{code: code, reason: reason, audit: audit, message: fmt.Sprintf(format, args...)}
}

// unavailable is the 503 of an apiserver's client: it never carries a
// Retry-After, which client-go would follow ten times (ANS-2).
func unavailable(audit, format string, args ...any) *refusal {
	return refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, audit, format, args...)
}

func badGateway(audit, format string, args ...any) *refusal {
	return refuse(http.StatusBadGateway, reasonBadGateway, audit, format, args...)
}

func forbidden(audit, format string, args ...any) *refusal {
	return refuse(http.StatusForbidden, metav1.StatusReasonForbidden, audit, format, args...)
}

func notFound() *refusal {
	return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "unknown_cluster", "the proxy has no such cluster")
}

func unauthorized(audit, message string) *refusal {
	return refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, audit, "%s", message)
}

func bodyTooLarge() *refusal {
	return refuse(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "body_too_large", "request body too large")
}

// status renders the refusal as the v1 Status every Kubernetes client decodes.
func (r *refusal) status() []byte {
	b, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  r.message,
		Reason:   r.reason,
		Code:     int32(r.code),
	})
	if err != nil {
		// A Status of strings and numbers always marshals.
		panic(err)
	}
	return append(b, '\n')
}

// header sets what belongs to the refusal besides its body.
func (r *refusal) header(h http.Header, length int) {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", fmt.Sprint(length))
	h.Set("Cache-Control", "no-cache, private")
	h.Add("Warning", warning(r.message))
	if r.code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if r.allow != "" {
		h.Set("Allow", r.allow)
	}
}

// write sends the refusal at once, without waiting for the request's body
// (ANS-3). A connection whose body was not read cannot carry another request.
func (r *refusal) write(w http.ResponseWriter, req *http.Request) error {
	closeUnread(w, req)
	body := r.status()
	r.header(w.Header(), len(body))
	w.WriteHeader(r.code)
	_, err := w.Write(body)
	return err
}

// closeUnread tells the server and the client that an HTTP/1.1 connection ends
// with this answer when its request body may not have been read.
func closeUnread(w http.ResponseWriter, req *http.Request) {
	if req.ProtoMajor == 1 && hasBody(req) {
		w.Header().Set("Connection", "close")
	}
}

// hasBody reports whether a body came with a request. Caddy wraps the body of
// a request without one as well, so only the length tells.
func hasBody(req *http.Request) bool { return req.ContentLength != 0 }

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
