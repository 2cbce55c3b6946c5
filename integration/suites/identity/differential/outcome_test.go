package differential

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
)

// forwarded is the prefix the proxy puts before names and groups.
const forwarded = "p:"

// outcome says in one line what became of a bearer: an identity such as
// "alice (uid) [group|group] {key=value|value}", or the code of the refusal.
func outcome(r *kube.Review) string {
	switch {
	case r.Code == http.StatusCreated:
		return identityText(r.User)
	case r.Code == http.StatusForbidden && strings.Contains(r.Status.Message, `User "system:anonymous" cannot`):
		return "anonymous"
	case r.Code == http.StatusForbidden:
		return "403 " + strings.TrimPrefix(r.Status.Message, "the identity given to the proxy ")
	}
	return fmt.Sprint(r.Code)
}

func identityText(u authenticationv1.UserInfo) string {
	text := u.Username
	if u.UID != "" {
		text += " (" + u.UID + ")"
	}
	groups := slices.DeleteFunc(slices.Clone(u.Groups), func(g string) bool { return g == "system:authenticated" })
	if len(groups) > 0 {
		text += " [" + strings.Join(groups, "|") + "]"
	}
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		text += " {" + key + "=" + strings.Join(u.Extra[key], "|") + "}"
	}
	return text
}

// unprefixed takes the proxy's own prefixes off what the apiserver saw through
// it.
func unprefixed(t *testing.T, u authenticationv1.UserInfo) authenticationv1.UserInfo {
	t.Helper()
	strip := func(s string) string {
		rest, ok := strings.CutPrefix(s, forwarded)
		if !ok && s != "system:authenticated" {
			t.Errorf("%q reached the apiserver without the prefix", s)
		}
		return rest
	}
	u.Username = strip(u.Username)
	groups := make([]string, len(u.Groups))
	for i, g := range u.Groups {
		if groups[i] = g; g != "system:authenticated" {
			groups[i] = strip(g)
		}
	}
	u.Groups = groups
	return u
}
