package upstream

import (
	"io"
	"time"
)

// expectedBody is the body of a request that expects 100 (Continue).
//
// Reading the body makes the server in front of us send a 100 to its client.
// net/http reads the body after a 100 of the apiserver, and when none came in
// time, but also after a final answer over HTTP/1.1, so that the connection can
// carry the next request: the client would then send a body that the apiserver
// has refused (RELAY-4). Such a read waits for the end of the request instead,
// and the connection ends with it.
type expectedBody struct {
	io.ReadCloser
	request *informed
	begun   time.Time
}

// waitForContinue wraps the body of the first attempt and those after it.
func waitForContinue(body *replayBody, request *informed) (first io.ReadCloser, again func() (io.ReadCloser, error)) {
	begun := time.Now()
	got100 := request.trace.Got100Continue
	request.trace.Got100Continue = func() {
		request.continued.Store(true)
		if got100 != nil {
			got100()
		}
	}
	wrap := func(attempt io.ReadCloser) io.ReadCloser {
		return &expectedBody{ReadCloser: attempt, request: request, begun: begun}
	}
	again = func() (io.ReadCloser, error) {
		attempt, err := body.again()
		if err != nil {
			return nil, err
		}
		return wrap(attempt), nil
	}
	return wrap(body.first()), again
}

func (b *expectedBody) Read(p []byte) (int, error) {
	if !b.request.continued.Load() && time.Since(b.begun) < expectContinue {
		<-b.request.Done()
		return 0, errBodyClosed
	}
	return b.ReadCloser.Read(p)
}
