package upstream

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// RELAY-4: Expect: 100-continue is passed on: a body that the apiserver does
// not want is not sent, one that it wants is.
func TestExpectContinue(t *testing.T) {
	for _, h1 := range []bool{true, false} {
		s := newServer(t, h1, func(w http.ResponseWriter, r *http.Request) {
			// Go's HTTP/2 server answers it and takes it away.
			if got := r.Header.Get("Expect"); h1 && got != "100-continue" {
				t.Errorf("Expect %q", got)
			}
			if r.URL.Path == "/refused" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			b, _ := io.ReadAll(r.Body)
			w.Write(b)
		})
		p := pair(t, s.config)
		send := func(path string) (*http.Response, string, bool) {
			body := &watchedReader{Reader: strings.NewReader("object")}
			r := request(t, s.config, "POST", path, body)
			r.ContentLength = 6
			r.Header.Set("Expect", "100-continue")
			res, got := do(t, p, r)
			return res, got, body.read.Load()
		}
		if res, _, read := send("/refused"); res.StatusCode != http.StatusForbidden || read {
			t.Errorf("h1 %t: %d, body read: %t", h1, res.StatusCode, read)
		}
		if res, got, _ := send("/wanted"); res.StatusCode != http.StatusOK || got != "object" {
			t.Errorf("h1 %t: %d %q", h1, res.StatusCode, got)
		}
	}
}

type watchedReader struct {
	io.Reader
	read atomic.Bool
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.read.Store(true)
	return r.Reader.Read(p)
}
