package request

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// A client that leaves before the end of an answer, as everyone does who has
// watched long enough, is no fault. reverse_proxy would warn of it, and abort the
// request, so that log_append behind it adds nothing to the access log. So such an
// answer ends for reverse_proxy as if it were complete. Any other error of the
// apiserver or of the connection stays one.

// isGone reports whether the client ended the request of this context. A context
// that ran out of time says nothing of the client.
func isGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// answerBody is the body of an answer on its way to the client.
type answerBody struct {
	io.ReadCloser
	client context.Context
	// abandoned says that the client was gone before the end of the body.
	abandoned atomic.Bool
}

// Read ends when the client is gone.
func (b *answerBody) Read(p []byte) (int, error) {
	if isGone(b.client) {
		b.abandoned.Store(true)
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && isGone(b.client) {
		b.abandoned.Store(true)
		err = io.EOF
	}
	return n, err
}

// isLost reports whether a write failed because the client is gone. The proxy's
// own limit on a client that does not read (RELAY-7) is another failure.
func (q *Request) isLost(err error) bool {
	return err != nil && isGone(q.r.Context()) && !errors.Is(err, os.ErrDeadlineExceeded)
}

// abandon ends an answer that its client did not wait for. A client of HTTP/1.1 may
// have closed only its own half of the connection: it must not take what it got
// for the whole answer, so the end of the answer is not sent.
func (q *Request) abandon() {
	if entry := q.config.Logger.Check(zapcore.DebugLevel, "the client was gone before the end of the answer"); entry != nil {
		entry.Write(zap.Stringer("cluster", q.decision.Key))
	}
	if q.r.ProtoMajor == 1 {
		_ = http.NewResponseController(q.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
}
