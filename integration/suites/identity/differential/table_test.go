package differential

import (
	"slices"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// section is the part of the table about one configuration.
type section struct {
	config string
	rows   []row
}

// row is a line of the table: the good bearer of Alice for the configuration
// with one change (nil for none), what the apiserver makes of it (see outcome),
// and whether the proxy makes the same of it.
type row struct {
	name      string
	change    recipe
	apiserver string
	proxy     difference
}

// difference is a deliberate one: what the proxy makes of the bearer, and the
// subject under which caddymodule/authn/doc.go says so.
type difference struct{ outcome, subject string }

var same difference

func but(outcome, subject string) difference { return difference{outcome, subject} }

// forwarding is the subject of what the proxy accepts and a front proxy cannot
// tell an apiserver; it is rule ID-2 of docs/reference.md.
const forwarding = "ID-2"

// want is what the proxy makes of the bearer.
func (r *row) want() string {
	if r.proxy == same {
		return r.apiserver
	}
	return r.proxy.outcome
}

// table is what an apiserver and the proxy make of bearers.
func table(w *world) []section {
	return slices.Concat(usernames(), groups(), uids(), extras(), emails(), ruleCases(), audienceCases(),
		distributed(w), algorithms(), headers(), payloads(), dates(), bearers(), entries())
}

// What becomes of the good bearer of the configuration basic, and refusals of
// the proxy.
const (
	alice = "alice (subject-alice) [team-a|a,b]"

	emptyUsername   = "403 has no username for the configured claim (the user name)"
	untransmitName  = "403 has a value it cannot forward (the user name)"
	untransmitGroup = "403 has a value it cannot forward (a group)"
	untransmitExtra = "403 has a value it cannot forward (an extra value)"
	tooLarge        = "403 is too large to forward (the groups)"
	tooLargeWhole   = "403 is too large to forward (the whole identity)"
)

// good are the claims that make a token of Alice good for a configuration.
var good = map[string]changes{
	expr:      {"nick": "ali"},
	prefixes:  {"roles": []string{"admin"}},
	rules:     {"hd": "example.test", "env": "", "level": 2},
	audiences: {"groups": "g"},
	nested:    {"https://example.com/name": "alice"},
}

// goodBearer is what a row changes. Without jti: it would be an extra.
func goodBearer(w *world, config string) *bearer {
	idp := w.idps[config]
	b := &bearer{world: w, idp: idp, claims: idp.Claims(oidc.Alice, changes{"jti": nil})}
	with(good[config])(b)
	return b
}
