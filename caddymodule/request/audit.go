package request

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// commit has all effects of a request on what outlives it. It runs once, when
// the headers of the response are sent or none will be: it counts the request
// and its authentication, and writes the one audit line (SIG-2). Quotas are
// charged here.
func (q *Request) commit(code int) {
	elapsed := time.Since(q.start)
	q.config.Clusters.CountRequest(q.decision.Cluster, code, elapsed)
	q.countDecision()
	if entry := q.config.Audit.Check(zapcore.InfoLevel, "request"); entry != nil {
		entry.Write(q.auditFields(code, elapsed)...)
	}
}

// countDecision counts what the checks found out, and warns of what callers can
// bring about as often as they like.
func (q *Request) countDecision() {
	d, metrics := q.decision, q.config.Clusters.Metrics()
	if d.authentication != "" {
		metrics.Authentications.WithLabelValues(string(d.Cluster.Spec.Auth.ValidateAgainst), d.authentication).Inc()
	}
	if d.result != nil && d.result.WrongAudience {
		d.Cluster.Auth.WarnAudience(d.Key)
	}
	if d.providerError != nil {
		d.Cluster.Auth.WarnProvider(d.Key, d.providerError)
	}
	if d.identityRefused != "" {
		metrics.IdentityRefused.WithLabelValues(d.identityRefused).Inc()
	}
}

// auditFields are the fields of the audit line. None of them holds a credential.
func (q *Request) auditFields(code int, elapsed time.Duration) []zap.Field {
	d := q.decision
	user, groups := "-", []string{}
	var mode, upstreamUser string
	var upstreamGroups []string
	if d.Cluster != nil {
		mode = modeText(d.Cluster.Spec.Mode)
	}
	if d.Identity != nil {
		user, groups = d.Identity.Name, d.Identity.Groups
	}
	if d.Forwarded != nil {
		upstreamUser, upstreamGroups = d.Forwarded.User, d.Forwarded.Groups
	}
	fields := make([]zap.Field, 0, 14)
	fields = append(fields,
		zap.String("user", user),
		zap.Strings("groups", groups),
		zap.String("ns", d.Key.Namespace),
		zap.String("cluster", d.Key.Name),
		zap.String("verb", q.r.Method),
		zap.String("path", d.Path),
		zap.Int("response_status", code),
		zap.Float64("latency_ms", float64(elapsed.Microseconds())/1000),
		zap.String("source_ip", q.client),
		zap.String("upstream_mode", mode),
		zap.String("upstream_user", upstreamUser),
		zap.Strings("upstream_groups", upstreamGroups),
	)
	if q.refusal != nil {
		message := q.refusal.Message
		if q.refusal.Audited != "" {
			message += ": " + q.refusal.Audited
		}
		fields = append(fields, zap.String("reason", q.refusal.Audit), zap.String("message", message))
	}
	return fields
}
