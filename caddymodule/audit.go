package caddymodule

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// auditor writes the one audit line of a request when the response headers are
// sent (SIG-2), counts the request, and adds to the response what belongs to
// every answer on the way out.
type auditor struct {
	caddyhttp.ResponseWriterWrapper

	runtime *runtime
	logger  *zap.Logger
	start   time.Time
	method  string
	client  string

	// Filled as the request is decided. None of it holds a credential.
	// namespace and cluster are what the URL named, served is the cluster.
	namespace, cluster string
	served             *cluster
	path               string
	decision           *decision
	refusal            *refusal
	// stripped says that Impersonate-* headers were removed (ID-6).
	stripped bool
	// http1 says that only the answer can tell the client to leave (STREAM-2).
	http1 bool

	sent bool
}

func newAuditor(w http.ResponseWriter, r *http.Request, rt *runtime, logger *zap.Logger) *auditor {
	return &auditor{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		runtime:               rt,
		logger:                logger,
		start:                 time.Now(),
		method:                r.Method,
		client:                clientIP(r.Context()),
		http1:                 r.ProtoMajor == 1,
	}
}

// refuse answers with a refusal.
func (a *auditor) refuse(refused *refusal, r *http.Request) error {
	a.refusal = refused
	return refused.write(a, r)
}

// WriteHeader sends the headers and writes the audit line. Informational
// answers pass; 101 is final.
func (a *auditor) WriteHeader(code int) {
	if a.sent || (code >= 100 && code < 200 && code != http.StatusSwitchingProtocols) {
		a.ResponseWriterWrapper.WriteHeader(code)
		return
	}
	a.sent = true
	if a.stripped {
		a.Header().Add("Warning", warning(impersonationIgnored))
	}
	if a.http1 && exit.begun.Load() && code != http.StatusSwitchingProtocols {
		a.Header().Set("Connection", "close")
	}
	a.ResponseWriterWrapper.WriteHeader(code)
	a.record(code)
}

// Write sends a body, and the headers of a 200 before it.
func (a *auditor) Write(p []byte) (int, error) {
	if !a.sent {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriterWrapper.Write(p)
}

// FlushError sends the headers when nothing was written yet.
func (a *auditor) FlushError() error {
	if !a.sent {
		a.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// finish writes the line of a request that ended without an answer: the
// client went away, or the connection was aborted.
func (a *auditor) finish() {
	if !a.sent {
		a.sent = true
		a.record(0)
	}
}

func (a *auditor) record(code int) {
	elapsed := time.Since(a.start)
	a.runtime.countRequest(a.served, code, elapsed)
	entry := a.logger.Check(zapcore.InfoLevel, "request")
	if entry == nil {
		return
	}
	fields := make([]zap.Field, 0, 14)
	user, groups := "-", []string{}
	var mode, upstreamUser string
	var upstreamGroups []string
	if a.served != nil {
		mode = modeText(a.served.spec.Mode)
	}
	if d := a.decision; d != nil {
		if d.id != nil {
			user, groups = d.id.Name, d.id.Groups
		}
		if d.fwd != nil {
			upstreamUser, upstreamGroups = d.fwd.User, d.fwd.Groups
		}
	}
	fields = append(fields,
		zap.String("user", user),
		zap.Strings("groups", groups),
		zap.String("ns", a.namespace),
		zap.String("cluster", a.cluster),
		zap.String("verb", a.method),
		zap.String("path", a.path),
		zap.Int("response_status", code),
		zap.Float64("latency_ms", float64(elapsed.Microseconds())/1000),
		zap.String("source_ip", a.client),
		zap.String("upstream_mode", mode),
		zap.String("upstream_user", upstreamUser),
		zap.Strings("upstream_groups", upstreamGroups),
	)
	if a.refusal != nil {
		fields = append(fields, zap.String("reason", a.refusal.audit), zap.String("message", a.refusal.message))
	}
	entry.Write(fields...)
}

// clientIP is the address Caddy settled on from the peer and trusted_proxies,
// without the zone of an IPv6 address.
func clientIP(ctx context.Context) string {
	ip, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	ip, _, _ = strings.Cut(ip, "%")
	return ip
}

// sourceOf is whose the address of a client is, for limits: of IPv6 whoever has
// one address has the /64 around it.
func sourceOf(ctx context.Context) string {
	ip := clientIP(ctx)
	address, err := netip.ParseAddr(ip)
	if err != nil || address.Unmap().Is4() {
		return ip
	}
	network, err := address.Prefix(64)
	if err != nil {
		return ip
	}
	return network.String()
}

// Interface guards.
var (
	_ http.ResponseWriter                       = (*auditor)(nil)
	_ interface{ FlushError() error }           = (*auditor)(nil)
	_ interface{ Unwrap() http.ResponseWriter } = (*auditor)(nil)
)
