package identity

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
)

// newRequestheader is the authenticator a kube-apiserver runs behind the
// check of the client certificate, with the usual flags.
func newRequestheader(t testing.TB) authenticator.Request {
	t.Helper()
	a, err := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"},
		[]string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// seenBy is the user that an apiserver reads from the headers, nil for none.
func seenBy(t testing.TB, a authenticator.Request, h http.Header) user.Info {
	t.Helper()
	resp, ok, err := a.AuthenticateRequest(&http.Request{Header: h.Clone(), URL: &url.URL{}})
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil
	}
	return resp.User
}

// wantSeen reports how got differs from exactly f, or "".
func wantSeen(got user.Info, f *Forwarded) string {
	switch {
	case got == nil:
		return "the apiserver sees no user"
	case got.GetName() != f.User:
		return "name " + got.GetName()
	case got.GetUID() != f.UID:
		return "uid " + got.GetUID()
	case !slices.Equal(got.GetGroups(), f.Groups):
		return "groups " + strings.Join(got.GetGroups(), "|")
	}
	extra := got.GetExtra()
	n := 0
	for key, values := range f.Extra {
		if len(values) == 0 {
			continue
		}
		n++
		if !slices.Equal(extra[key], values) {
			return "extra " + key
		}
	}
	if len(extra) != n {
		return "additional extra"
	}
	return ""
}

// forbidden is ID-5 written down a second time, slowly.
func forbidden(key string, o ScrubOptions) bool {
	name := strings.ReplaceAll(strings.ToLower(key), "_", "-")
	switch name {
	case "x-forwarded-user", "x-forwarded-groups", "x-real-ip", "forwarded", "authorization", "proxy-authorization":
		return true
	case "cookie":
		return !o.KeepCookies
	}
	return strings.HasPrefix(name, "x-remote-") ||
		strings.HasPrefix(name, "impersonate-") && !o.KeepImpersonation
}
