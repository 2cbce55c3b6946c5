package differential

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// expiry: from exp on a token is no longer good (RFC 7519, section 4.1.4), but
// at the apiserver it is for ten seconds more when it was asked before. Where
// the machine is too slow to ask within those times, other tokens are tried.
func (w *world) expiry(t *testing.T) {
	const second, cached = time.Second, 10 * time.Second
	type answers struct{ Before, InItsSecond, InItsSecondAgain, After, AfterAgain string }
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); {
		exp := time.Now().Truncate(second).Add(2 * second)
		bearer := func(name string) http.Header {
			b := goodBearer(w, basic)
			with(changes{"exp": exp.Unix(), "nonce": name})(b)
			return b.header()
		}
		old, young, late := bearer("old"), bearer("young"), bearer("late")
		asked := time.Now()
		apiserver := answers{Before: w.ask(t, w.api.URL, old)}
		proxy := answers{Before: w.ask(t, w.proxied(basic), old)}
		if !time.Now().Before(exp) {
			continue
		}
		time.Sleep(time.Until(exp))
		apiserver.InItsSecond, apiserver.InItsSecondAgain = w.ask(t, w.api.URL, young), w.ask(t, w.api.URL, old)
		proxy.InItsSecond, proxy.InItsSecondAgain = w.ask(t, w.proxied(basic), young), w.ask(t, w.proxied(basic), old)
		if !time.Now().Before(exp.Add(second)) {
			continue
		}
		time.Sleep(time.Until(exp.Add(second)))
		apiserver.After, apiserver.AfterAgain = w.ask(t, w.api.URL, late), w.ask(t, w.api.URL, old)
		proxy.After, proxy.AfterAgain = w.ask(t, w.proxied(basic), late), w.ask(t, w.proxied(basic), old)
		if time.Since(asked) > cached {
			continue
		}
		if diff := cmp.Diff(answers{alice, "401", alice, "401", alice}, apiserver); diff != "" {
			t.Errorf("the apiserver (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(answers{alice, "401", "401", "401", "401"}, proxy); diff != "" {
			t.Errorf("the proxy (-want +got):\n%s", diff)
		}
		return
	}
	t.Error("this machine never asked in time")
}
