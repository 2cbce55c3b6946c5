package upstream

import "io"

// unwaited is the body of a response to a request with a body. Closing it does
// not wait for the request's body.
//
// An apiserver may refuse a request without reading its body, and a client that
// reads the refusal stops sending (net/http does on every status above 299).
// HTTP/2 of net/http waits in Close until it has stopped reading the request's
// body, and reverse_proxy keeps a request's body open of which nothing was read
// yet: the end of the response would wait for bytes that the client only sends
// when the response is over. The server closes the request's body once the
// handler has returned.
type unwaited struct{ io.ReadCloser }

// Close ends the response in the background. Its error has no reader.
func (u unwaited) Close() error {
	go u.ReadCloser.Close()
	return nil
}
