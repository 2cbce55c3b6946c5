package users

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/leakcheck"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// AUTH-4, AUTH-6, AUTH-14 to AUTH-16, ID-1, ID-4: who arrives at the apiserver,
// by its audit log, for every validator and kind of bearer, in both modes. In
// Passthrough it is the apiserver's own reading of the token it got.
func TestAUTHAuditNamesWhoArrived(t *testing.T) {
	w := get(t)
	for _, y := range ways() {
		t.Run(y.name, func(t *testing.T) {
			bearer := y.bearer(t, w)
			for _, target := range []struct {
				front
				api    *kube.APIServer
				user   string
				groups []string
			}{
				{apiPassthrough, w.own, y.own, nil},
				{apiFrontProxy, w.plain, prefix + y.user, prefixed(y.groups)},
			} {
				for _, protocol := range []string{"h1", "h2"} {
					agent := "audit " + strings.Join([]string{y.name, target.suffix, protocol}, " ")
					header := kube.Bearer(bearer)
					header.Set("User-Agent", agent)
					client := w.px.Client(protocol)
					r := kube.MustWhoAmI(t, client, w.px.ClusterURL(ns, y.cluster()+target.suffix), header)
					client.CloseIdleConnections()
					if r.Code != http.StatusCreated || r.User.Username != target.user {
						t.Fatalf("%s: %d as %q, want %q: %s", agent, r.Code, r.User.Username, target.user, r.Status.Message)
					}
					events := target.api.MustAudit(t, func(e *auditv1.Event) bool { return e.UserAgent == agent })
					got, want := events[0].User, append(slices.Clone(target.groups), "system:authenticated")
					if got.Username != target.user || !cmp.Equal(got.Groups, want) || events[0].ResponseStatus.Code != http.StatusCreated {
						t.Errorf("%s: the audit log names %q of %q, want %q of %q", agent, got.Username, got.Groups, target.user, want)
					}
				}
			}
		})
	}
}

func prefixed(groups []string) []string {
	var all []string
	for _, g := range groups {
		all = append(all, prefix+g)
	}
	return all
}

// ID-3, ID-4, AUTH-15: what reaches an upstream, byte for byte. In Passthrough
// the caller's token, or what it was exchanged for and no piece of the API
// token; in FrontProxy no piece of either.
func TestAUTH15WhatReachesTheUpstream(t *testing.T) {
	w := get(t)
	for _, y := range ways() {
		t.Run(y.name, func(t *testing.T) {
			bearer := y.bearer(t, w)
			before := len(y.at(w).TokenCalls())
			for _, f := range recorded {
				for _, protocol := range []string{"h1", "h2"} {
					up := w.records[f.mode]
					up.Reset()
					a := ask(t, w.px, protocol, y.cluster()+f.suffix, "/api/v1/pods", bearer)
					if a.Code != http.StatusOK {
						t.Fatalf("%s %s: %d %s", f.suffix, protocol, a.Code, a.Body)
					}
					r := up.Only(t)
					sent := r.Lines("Authorization")
					if f.mode == v1.ModeFrontProxy {
						if r.Identity == nil || r.Identity.User != prefix+y.user || !cmp.Equal(r.Identity.Groups, prefixed(y.groups)) || len(sent) != 0 {
							t.Errorf("FrontProxy: %v, Authorization %q", r.Identity, sent)
						}
						leakcheck.Pieces{}.Add("the bearer", bearer).Absent(t, "the upstream's bytes", r.Text())
						continue
					}
					if len(sent) != 1 || !strings.HasPrefix(sent[0], "Bearer ") || len(r.Like("x-remote-")) != 0 {
						t.Fatalf("Passthrough: Authorization %q, %v", sent, r.Like("x-remote-"))
					}
					token := strings.TrimPrefix(sent[0], "Bearer ")
					if !y.exchanged {
						if token != bearer {
							t.Errorf("Passthrough: %q", token)
						}
						continue
					}
					leakcheck.Pieces{}.Add("the API token", secretPart(bearer)).Absent(t, "the upstream's bytes", r.Text())
					y.issued(t, w, token)
				}
			}
			y.asked(t, w, before, bearer)
		})
	}
}

// issued fails unless a token is one of the provider's for the machine.
func (y way) issued(t *testing.T, w *world, token string) {
	t.Helper()
	if strings.Count(token, ".") != 2 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, w.idp.Issuer, nil)
		if subject, err := w.webhook.introspect(req, token); err != nil || subject != "subject-robot" {
			t.Errorf("the exchanged token is of %q: %v", subject, err)
		}
		return
	}
	if claims := payload(t, token); claims["iss"] != y.at(w).Issuer || claims["sub"] != "subject-robot" {
		t.Errorf("the exchanged token holds %v", claims)
	}
}

// asked looks at what the token endpoint was asked. Each of two clusters
// exchanges a token once, however many requests carry it.
func (y way) asked(t *testing.T, w *world, before int, bearer string) {
	t.Helper()
	calls := y.at(w).TokenCalls()[before:]
	if !y.exchanged {
		if len(calls) != 0 {
			t.Errorf("a human's token was exchanged: %d calls", len(calls))
		}
		return
	}
	good := 0
	for _, c := range calls {
		if got := c.Form["subject_token"]; !slices.Equal(got, []string{bearer}) {
			t.Errorf("subject_token %q", got)
		}
		for name, want := range y.form {
			if got := c.Form[name]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if c.Auth == y.method {
			good++
		}
	}
	if good != len(recorded) {
		t.Errorf("%d exchanges, want one by each of %d clusters", good, len(recorded))
	}
}
