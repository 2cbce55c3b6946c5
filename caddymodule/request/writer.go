package request

import (
	"io"
	"net/http"
)

// Unwrap gives http.ResponseController the writer underneath.
func (q *Request) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// WriteHeader sends the headers and commits. Informational answers pass; 101 is
// final.
func (q *Request) WriteHeader(code int) {
	if q.sent || code >= 100 && code < 200 && code != http.StatusSwitchingProtocols {
		q.ResponseWriter.WriteHeader(code)
		return
	}
	q.sent = true
	if q.decision.stripped {
		q.Header().Add("Warning", impersonationIgnored)
	}
	// On HTTP/1.1 only the answer can tell the client to leave (STREAM-2).
	if q.r.ProtoMajor == 1 && code != http.StatusSwitchingProtocols && q.config.Clusters.Stopping() {
		q.Header().Set("Connection", "close")
	}
	q.ResponseWriter.WriteHeader(code)
	q.commit(code)
}

// Write sends a body, and the headers of a 200 before it.
func (q *Request) Write(p []byte) (int, error) {
	if !q.sent {
		q.WriteHeader(http.StatusOK)
	}
	return q.ResponseWriter.Write(p)
}

// ReadFrom sends a body, and the headers of a 200 before it.
func (q *Request) ReadFrom(r io.Reader) (int64, error) {
	if !q.sent {
		q.WriteHeader(http.StatusOK)
	}
	return io.Copy(q.ResponseWriter, r)
}

// FlushError sends the headers when nothing was written yet.
func (q *Request) FlushError() error {
	if !q.sent {
		q.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(q.ResponseWriter).Flush()
}

// Finish commits a request that ended without an answer: the client went away,
// or the connection was aborted.
func (q *Request) Finish() {
	if !q.sent {
		q.sent = true
		q.commit(0)
	}
}

// Interface guards.
var (
	_ http.ResponseWriter                       = (*Request)(nil)
	_ io.ReaderFrom                             = (*Request)(nil)
	_ interface{ FlushError() error }           = (*Request)(nil)
	_ interface{ Unwrap() http.ResponseWriter } = (*Request)(nil)
)
