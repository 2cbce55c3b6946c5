package idp

import (
	"context"
	"time"
)

// What the tokens of one source may cost an endpoint.
const (
	// So many tokens of a source may be refused at once, and so many a second for
	// long. All clients behind one address translation are one source, and what
	// one of them has refused should not keep the others out; yet it takes four
	// sources to use up the rate of a class.
	sourceBurst, sourceRate = 500, 25
	// A source is quiet when none of its tokens was refused for quietAfter, for
	// quietCalls of its tokens at once.
	quietAfter = 30 * time.Second
	quietCalls = 4
	// maxSources are remembered, those that sent a token last.
	maxSources = 4096
)

type sourceKey struct{}

// WithSource says where a token comes from: the address of a client, or of the
// network that is one client's (an IPv6 /64). Each source has a budget of
// refusals. An empty source has none of its own.
func WithSource(ctx context.Context, source string) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

// SourceOf is the source that WithSource said, empty for none.
func SourceOf(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	return source
}

// source is what is known of one. It is guarded by Limiter.mu.
type source struct {
	refusals  bucket
	refusedAt time.Time // zero for never
	open      int       // calls that go on or wait
}

// sourceLocked returns the source of a strange token, nil for none.
func (l *Limiter) sourceLocked(name string, now time.Time) *source {
	if name == "" {
		return nil
	}
	s, ok := l.sources.Get(name)
	if !ok {
		s = &source{refusals: newBucket(sourceBurst, sourceRate, now)}
		l.sources.Add(name, s)
	}
	return s
}

// isQuiet reports whether one more token of the source may do without the budget
// that sources share which had tokens refused.
func (s *source) isQuiet(now time.Time) bool {
	return s != nil && s.open < quietCalls && (s.refusedAt.IsZero() || now.Sub(s.refusedAt) >= quietAfter)
}
