package upstream

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// stalled is the body of a client that waits for the answer before it sends
// any of it, behind a reverse_proxy that does not close what was not read.
type stalled struct{ until chan struct{} }

func (s stalled) Read([]byte) (int, error) {
	<-s.until
	return 0, io.ErrUnexpectedEOF
}

func (s stalled) Close() error { return nil }

// ANS-3, RELAY-3: an answer that comes before the request's body is relayed to
// its end without waiting for the body.
func TestEarlyAnswerDoesNotWaitForTheBody(t *testing.T) {
	for name, h1 := range map[string]bool{"h2": false, "h1": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, h1, func(w http.ResponseWriter, r *http.Request) {
				if h1 {
					// Else the server would first read the body.
					_ = http.NewResponseController(w).EnableFullDuplex()
				}
				w.Header().Set("Content-Length", "7")
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, "refused")
			})
			p := pair(t, s.config)
			body := stalled{make(chan struct{})}
			defer close(body.until)
			r := request(t, s.config, http.MethodPost, "/", body)
			r.ContentLength = 100
			res, err := p.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			group := NewRegistry().NewGroup()
			group.Track(res, StreamOptions{Kind: Response})
			done := make(chan string)
			go func() {
				text, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				done <- string(text)
			}()
			select {
			case text := <-done:
				if res.StatusCode != http.StatusForbidden || text != "refused" {
					t.Errorf("%d %q", res.StatusCode, text)
				}
			case <-time.After(10 * time.Second):
				t.Error("the end of the answer waits for the request's body")
			}
		})
	}
}
