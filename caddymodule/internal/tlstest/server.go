package tlstest

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Start starts a server of HTTP/1.1 and HTTP/2, which ends with the test. It
// logs nothing: clients that distrust it are part of the tests.
func Start(tb testing.TB, handler http.Handler) *httptest.Server {
	tb.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = true
	s.StartTLS()
	tb.Cleanup(s.Close)
	return s
}

// CA is the certificate of a server in PEM, by which clients trust it.
func CA(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}
