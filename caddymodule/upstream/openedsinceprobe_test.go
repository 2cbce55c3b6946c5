package upstream

import (
	"net/http"
	"testing"
)

// TRUST-4: a new connection is told of until what answers was checked, one for
// an upgrade is not.
func TestFresh(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	p := pair(t, s.config)
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	for _, step := range []struct {
		name   string
		before func()
		header http.Header
		want   bool
	}{
		{name: "an upgrade", header: upgrade},
		{name: "the first request", want: true},
		{name: "not checked yet", want: true},
		{name: "checked", before: p.MarkProbed},
		{name: "the connection is lost", before: func() { p.plain.CloseIdleConnections() }, want: true},
	} {
		if step.before != nil {
			step.before()
		}
		r := request(t, s.config, "GET", "/", nil)
		r.Header = step.header.Clone()
		if r.Header == nil {
			r.Header = http.Header{}
		}
		do(t, p, r)
		if p.OpenedSinceProbe() != step.want {
			t.Errorf("%s: fresh %t, want %t", step.name, p.OpenedSinceProbe(), step.want)
		}
	}
}
