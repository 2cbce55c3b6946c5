package idp

import (
	"context"
	"net/http"
	"time"
)

// Asker asks one endpoint about tokens. It is safe for concurrent use, and
// holds no goroutine and no connection of its own.
type Asker struct {
	client *Client
	limits *Limiter
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
func NewAsker(client *Client, now func() time.Time, onChange func()) *Asker {
	return &Asker{client: client, limits: NewLimiter(now, onChange)}
}

// Ask asks about a token, when it is its turn. It returns what Read returns,
// or a Fault when there was nothing to read; no Fault is a verdict on the
// token. It takes up to AnswerLimit from its turn on, and waits until ctx ends
// for that.
func (a *Asker) Ask(ctx context.Context, call Call) error {
	return a.limits.Ask(ctx, call.Token, call.Verified, func(ctx context.Context) error { return a.do(ctx, call) })
}

func (a *Asker) do(ctx context.Context, call Call) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	request, err := call.Request(ctx)
	if err != nil {
		return notHTTPS
	}
	err = a.client.Do(request, func(r *Response) error {
		err := call.Read(r)
		if _, fault := err.(Fault); fault && r.mayBeAboutToken() {
			return AboutToken(err)
		}
		return err
	})
	if err == TooLarge {
		return AboutToken(err)
	}
	return err
}

// mayBeAboutToken reports whether an answer that cannot be used may be the one to
// this token alone. The others say that nothing can be answered now.
func (r *Response) mayBeAboutToken() bool {
	switch r.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return r.Status == http.StatusOK || r.Status/100 == 4
}

// Fault is what went wrong with the last call, empty for nothing or when that
// is long ago.
func (a *Asker) Fault() Fault { return a.limits.Fault() }
