package request

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Later handlers and logs know the caller, the cluster and the reason of a
// refusal.
func TestPlaceholder(t *testing.T) {
	as := func(who *identity.Identity) validatorFunc {
		return func(string) (*authn.Result, error) { return &authn.Result{Identity: who}, nil }
	}
	for name, tc := range map[string]struct {
		mode v1.UpstreamMode
		who  *identity.Identity
		path string
		want map[string]any
	}{
		"FrontProxy": {
			mode: v1.ModeFrontProxy, who: &identity.Identity{Name: "élodie", Groups: []string{"a", "b,c"}}, path: "/clusters/team-a/prod/api",
			want: map[string]any{
				PlaceholderUser: "élodie", PlaceholderGroups: "a,b%2Cc", placeholderCluster: "team-a/prod",
				placeholderMode: "FrontProxy", placeholderUpstreamUser: "proxyauth:élodie", placeholderReason: "",
			},
		},
		"Passthrough": {
			mode: v1.ModePassthrough, who: &identity.Identity{Name: "alice\nbob 100%"}, path: "/clusters/team-a/prod/api",
			want: map[string]any{
				PlaceholderUser: "alice%0Abob 100%25", PlaceholderGroups: "", placeholderCluster: "team-a/prod",
				placeholderMode: "Passthrough", placeholderUpstreamUser: "", placeholderReason: "",
			},
		},
		"refused over the name, which nothing shows": {
			mode: v1.ModeFrontProxy, who: &identity.Identity{Name: "a\nb"}, path: "/clusters/team-a/prod/api",
			want: map[string]any{
				placeholderCluster: "team-a/prod", placeholderMode: "FrontProxy",
				placeholderUpstreamUser: "", placeholderReason: "upstream_identity_refused",
			},
		},
		"no such cluster": {
			mode: v1.ModeFrontProxy, path: "/clusters/team-a/other/api",
			want: map[string]any{
				placeholderCluster: "", placeholderMode: "", placeholderUpstreamUser: "", placeholderReason: "unknown_cluster",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, tc.mode, as(tc.who), nil)
			r := httptest.NewRequest(http.MethodGet, tc.path, nil)
			r.Header.Set("Authorization", "Bearer secret-token")
			q := New(httptest.NewRecorder(), r, configOf(clustersOf(c)), Name{InPath: true}, "192.0.2.1")
			defer q.Finish()
			if _, refused := q.Decide(); refused != nil {
				if err := q.Refuse(refused); err != nil {
					t.Fatal(err)
				}
			}
			got := map[string]any{}
			for _, key := range []string{PlaceholderUser, PlaceholderGroups, placeholderCluster, placeholderMode, placeholderUpstreamUser, placeholderReason} {
				if value, ok := q.Placeholder(key); ok {
					got[key] = value
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if value, ok := q.Placeholder("http.proxyauth.token"); ok {
				t.Errorf("an unknown name has a value: %v", value)
			}
		})
	}
}

// Whatever names a user and groups have, their text is one printable line from
// which the names can be read again: none passes for another, or for two.
func TestEncodedNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOf(rapid.OneOf(
			rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("a,%\n\r\u2028\u202e\x1b\"\\{}"))),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		)).Draw(t, "names")
		text := joinNames(names)
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("not printable: %q", text)
		}
		if strings.ContainsAny(text, `{}"`) {
			t.Fatalf("%q begins a placeholder or ends a quoted text", text)
		}
		if len(names) == 0 {
			return
		}
		for i, part := range strings.Split(text, ",") {
			if name, err := url.PathUnescape(part); err != nil || name != names[i] {
				t.Fatalf("name %d of %q is %q, error %v", i, names, name, err)
			}
		}
	})
}
