package idp

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// What one endpoint is asked, separately for tokens that are known and for
// all others.
const (
	// maxCalls go on at once.
	maxCalls = 16
	// maxWaiting bounds what tokens hold that wait for their turn, in bytes.
	maxWaiting      = 16 << 20
	waitingOverhead = 4 << 10 // of a token, beside its bytes
	// So many tokens may be refused at once, and so many a second for long.
	// A token that is accepted counts for nothing.
	refusedBurst, refusedRate = 100, 10
	// So often an endpoint that fails is asked at once, and a second for long.
	faultBurst, faultRate = 32, 5

	// maxKnown is how many good tokens are known.
	maxKnown = 10_000
	// faultAge is how long a fault is shown that nobody has met since.
	faultAge = 5 * time.Minute
)

// The answers for a token that is not asked about. They are no faults of the
// provider's and not shown as such.
const (
	tooManyWait    Fault = "too many tokens wait for it"
	tooManyRefused Fault = "too many tokens were refused lately"
	outOfTime      Fault = "it did not answer in time"
)

// Asker asks one endpoint about tokens. It is safe for concurrent use, and
// holds no goroutine and no connection of its own.
type Asker struct {
	client   *http.Client
	now      func() time.Time
	onChange func()

	known, strange class

	mu sync.Mutex
	// good are digests of strange tokens that turned out good.
	good    *simplelru.LRU[[sha256.Size]byte, struct{}]
	fault   Fault
	faultAt time.Time
}

// class is how tokens of one kind share the endpoint. One kind does not take
// the place of the other.
type class struct {
	calls   chan struct{}
	waiting atomic.Int64
	// These are guarded by Asker.mu.
	refusals, faults budget
	fault            Fault // the last one met, for those that are not asked about
}

// Call is one token that an endpoint is asked about.
type Call struct {
	// Token is what the answer is about.
	Token string
	// Verified says that the provider is known to have issued the token, so
	// that it is no random text.
	Verified bool
	// Request makes the request (see NewGet and NewPost). An error is a Fault.
	Request func(context.Context) (*http.Request, error)
	// Read judges the answer: nil for a token that is good, a Fault for an
	// answer that should not be, and any other error for a token that is
	// refused.
	Read func(*Response) error
}

// NewAsker makes an Asker. now is the clock; onChange, if not nil, is told
// that Fault may have changed, and must not block.
func NewAsker(client *http.Client, now func() time.Time, onChange func()) *Asker {
	good, _ := simplelru.NewLRU[[sha256.Size]byte, struct{}](maxKnown, nil) // fails for a size below 1
	a := &Asker{client: client, now: now, onChange: onChange, good: good}
	for _, c := range []*class{&a.known, &a.strange} {
		c.calls = make(chan struct{}, maxCalls)
		c.refusals = newBudget(refusedBurst, refusedRate, now())
		c.faults = newBudget(faultBurst, faultRate, now())
	}
	return a
}

// Ask asks about a token, when it is its turn. It returns what Read returns,
// or a Fault when there was nothing to read; no Fault is a verdict on the
// token. It takes up to AnswerLimit from its turn on, and waits until ctx ends
// for that.
func (a *Asker) Ask(ctx context.Context, call Call) error {
	token := sha256.Sum256([]byte(call.Token))
	class := a.class(call.Verified, token)
	n := int64(len(call.Token) + waitingOverhead)
	defer class.waiting.Add(-n)
	if class.waiting.Add(n) > maxWaiting {
		return tooManyWait
	}
	select {
	case class.calls <- struct{}{}:
		defer func() { <-class.calls }()
	case <-ctx.Done():
		return outOfTime
	}
	if err := a.begin(class); err != nil {
		return err
	}
	err := a.do(ctx, call)
	a.end(class, token, err)
	return err
}

func (a *Asker) do(ctx context.Context, call Call) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	request, err := call.Request(ctx)
	if err != nil {
		return notHTTPS
	}
	response, err := Do(a.client, request)
	if err != nil {
		return err
	}
	return call.Read(response)
}

func (a *Asker) class(verified bool, token [sha256.Size]byte) *class {
	if verified {
		return &a.known
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.good.Get(token); ok {
		return &a.known
	}
	return &a.strange
}

// begin takes from the budget what a refusal would cost.
func (a *Asker) begin(c *class) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if !c.faults.has(now) {
		return c.fault
	}
	if !c.refusals.has(now) {
		return tooManyRefused
	}
	c.refusals.take()
	return nil
}

// end settles the account of a call.
func (a *Asker) end(c *class, token [sha256.Size]byte, err error) {
	a.mu.Lock()
	before := a.fault
	var fault Fault
	if errors.As(err, &fault) {
		a.fault, a.faultAt, c.fault = fault, a.now(), fault
		c.faults.take()
		c.refusals.giveBack()
	} else {
		a.fault = ""
		c.faults.fill()
	}
	switch {
	case err == nil:
		c.refusals.giveBack()
		if c == &a.strange {
			a.good.Add(token, struct{}{})
		}
	case fault == "":
		a.good.Remove(token)
	}
	changed := before != a.fault
	a.mu.Unlock()
	if changed && a.onChange != nil {
		a.onChange()
	}
}

// Fault is what went wrong with the last call, empty for nothing or when that
// is long ago.
func (a *Asker) Fault() Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now().Sub(a.faultAt) >= faultAge {
		return ""
	}
	return a.fault
}

// budget is a token bucket in which what was taken can be given back.
type budget struct {
	left, most, rate float64
	at               time.Time
}

func newBudget(burst, perSecond float64, now time.Time) budget {
	return budget{left: burst, most: burst, rate: perSecond, at: now}
}

// has reports whether there is something to take.
func (b *budget) has(now time.Time) bool {
	if since := now.Sub(b.at); since > 0 {
		b.left = min(b.most, b.left+b.rate*since.Seconds())
	}
	b.at = now
	return b.left >= 1
}

func (b *budget) take()     { b.left-- }
func (b *budget) giveBack() { b.left = min(b.most, b.left+1) }
func (b *budget) fill()     { b.left = b.most }
