package authn

import (
	"context"
	"sync/atomic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// What tokens hold that wait for the provider of a key set, or for their turn to
// be verified. Anybody can send tokens that name an issuer, and it may take ten
// seconds to answer.
const (
	maxWaiting      = 16 << 20       // per key set
	maxShare        = maxWaiting / 4 // per authenticator
	waitingOverhead = 8 << 10        // of a token, beside its bytes
)

// keyShare is what one authenticator has of a key set. Others have the same one,
// perhaps those of other clusters: what is sent to one of them takes neither the
// room nor the turn of another. It can be copied, and is small.
type keyShare struct {
	*keySet
	use *keyUse
}

type keyUse struct {
	// waiting and judging are what tokens hold that wait for the provider,
	// and that wait to be verified.
	waiting, judging atomic.Int64
	// verifications come before those of the key set, so that of one
	// authenticator there are never more than these in the queue there.
	verifications lanes
}

func newKeyShare(s *keySet) keyShare { return keyShare{s, &keyUse{verifications: newLanes()}} }

// tokenWeight is what a token of so many bytes holds: as sent, its parts, its
// claims.
func tokenWeight(bytes int) int64 { return int64(bytes)*3 + waitingOverhead }

// admit lets a token wait for the provider, if there is room. A token that can be
// judged with the keys at hand is not admitted, since it does not wait.
func (s keyShare) admit(bytes int) (leave func(), err error) {
	n := tokenWeight(bytes)
	leave = func() {
		s.use.waiting.Add(-n)
		s.waiting.Add(-n)
	}
	own, all := s.use.waiting.Add(n), s.waiting.Add(n)
	if own > maxShare || all > maxWaiting {
		leave()
		return nil, unavailable(s.issuer, idp.TooManyWait)
	}
	return leave, nil
}

// wait has a token wait for a read. How it ended is in the key set.
func (s keyShare) wait(ctx context.Context, read *keyRead, bytes int) error {
	leave, err := s.admit(bytes)
	if err != nil {
		return err
	}
	defer leave()
	select {
	case <-read.done:
		return nil
	case <-ctx.Done():
		return &Unavailable{Fault: s.issuer + ": it did not answer in time"}
	}
}

// judge tries a token with known keys when it is its turn.
func (s keyShare) judge(ctx context.Context, known *knownKeys, token *jwt) (key *publicKey, refused *Unauthenticated, err error) {
	n := tokenWeight(len(token.raw))
	defer s.use.judging.Add(-n)
	if s.use.judging.Add(n) > maxShare || s.use.verifications.enter(ctx) != nil {
		return nil, nil, errBusy
	}
	defer s.use.verifications.leave()
	if s.verifications.enter(ctx) != nil {
		return nil, nil, errBusy
	}
	defer s.verifications.leave()
	key, refused = known.verify(token)
	return key, refused, nil
}
