package differential

import (
	"testing"
	"time"
)

func TestAgainstApiserver(t *testing.T) {
	w := newWorld(t)
	all := table(w)
	t.Run("AUTH-4, AUTH-10, AUTH-11 verdicts", func(t *testing.T) { w.verdicts(t, all) })
	t.Run("differences are documented", func(t *testing.T) { documented(t, all) })
	t.Run("AUTH-4, AUTH-12 expiry", w.expiry)
	t.Run("AUTH-5 key fetches", w.keyFetches)
	t.Run("AUTH-13 provider away", w.providerAway)
}

// verdicts: the proxy takes a bearer for the same user as a kube-apiserver with
// the same jwt, but for what the table says.
func (w *world) verdicts(t *testing.T, all []section) {
	bearers, differences := 0, 0
	for _, s := range all {
		for _, r := range s.rows {
			bearers++
			t.Run(s.config+": "+r.name, func(t *testing.T) { w.compare(t, s.config, &r) })
			if r.proxy != same {
				differences++
				t.Logf("%-45s apiserver: %-45.45q proxy: %-45.45q %s", s.config+": "+r.name, r.apiserver, r.want(), r.proxy.subject)
			}
		}
	}
	t.Logf("%d bearers: %d alike, %d different on purpose", bearers, bearers-differences, differences)
}

func (w *world) compare(t *testing.T, config string, r *row) {
	b := goodBearer(w, config)
	if r.change != nil {
		r.change(b)
	}
	header := b.header()
	got := w.ask(t, w.api.URL, header)
	if b.patient {
		for deadline := time.Now().Add(20 * time.Second); got != r.apiserver && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			got = w.ask(t, w.api.URL, header)
		}
	}
	if got != r.apiserver {
		t.Errorf("the apiserver: %.200q, want %.200q", got, r.apiserver)
	}
	if r.proxy != same && r.want() == r.apiserver {
		t.Errorf("no difference, but a reason: %s", r.proxy.subject)
	}
	fetched := w.fetched.Load()
	if got := w.ask(t, w.proxied(config), header); got != r.want() {
		t.Errorf("the proxy: %.200q, want %.200q", got, r.want())
	}
	if w.fetched.Load() != fetched {
		t.Errorf("the proxy fetched a URL that the token names")
	}
}
