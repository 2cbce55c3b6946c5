package idp

import (
	"context"
	"time"
)

// What one source of tokens may cost an endpoint.
const (
	// So many tokens of a source may be refused at once, and so many a second for
	// long. All clients behind one address translation are one source, and what
	// one of them has refused should not keep the others out; yet it takes four
	// sources to use up the rate of a class.
	sourceBurst, sourceRate = 500, 25
	// A source counts as quiet when none was refused for quietAfter, for
	// quietCalls of its tokens at once.
	quietAfter = 30 * time.Second
	quietCalls = 4
	// maxSources are remembered: those of which tokens were refused.
	maxSources = 4096
)

type sourceKey struct{}

// WithSource says where a token comes from: the address of a client, or of the
// network that is one client's (an IPv6 /64). Each source has a budget of
// refusals of its own. An empty one is nobody's in particular.
func WithSource(ctx context.Context, source string) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

func sourceOf(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	return source
}

// source is what is known of one. It is guarded by Limiter.mu.
type source struct {
	name      string
	refusals  budget
	refusedAt time.Time // zero for never
	open      int       // calls that go on or wait
}

// enterLocked returns the source of a strange token, nil for none.
func (l *Limiter) enterLocked(name string, now time.Time) *source {
	if name == "" {
		return nil
	}
	s, ok := l.sources.Get(name)
	if !ok {
		s = &source{name: name, refusals: newBudget(sourceBurst, sourceRate, now)}
		l.sources.Add(name, s)
	}
	s.open++
	return s
}

// leaveLocked forgets a source of which nothing was refused.
func (l *Limiter) leaveLocked(s *source) {
	if s == nil {
		return
	}
	s.open--
	if s.open == 0 && s.refusedAt.IsZero() {
		if known, ok := l.sources.Peek(s.name); ok && known == s {
			l.sources.Remove(s.name)
		}
	}
}

// quiet reports whether a token of the source may do without the budget that is
// shared with those who had tokens refused.
func (s *source) quiet(now time.Time) bool {
	return s != nil && s.open <= quietCalls && (s.refusedAt.IsZero() || now.Sub(s.refusedAt) >= quietAfter)
}
