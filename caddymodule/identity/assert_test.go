package identity

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// ID-7: Assert alone wins over whatever is there, Connection tokens included.
func TestAssertWins(t *testing.T) {
	a := newRequestheader(t)
	f, r := Forward(&Identity{Name: "alice", Groups: []string{"dev"}, Extra: extra("e.x/scopes", "s")}, prefixT)
	if r != nil {
		t.Fatal(r)
	}
	h := http.Header{
		"X-Remote-User": {"root"}, "x-remote-user": {"root"}, "X_Remote_User": {"root"},
		"X-Remote-Group": {"system:masters", "other"}, "X-Remote-Uid": {"0"},
		"X-Remote-Extra-Scopes": {"all"}, "x-remote-extra-a": {"b"}, "X-Remote-Extra-E.x%2fscopes": {"all"},
		"Connection": {"close, X-Remote-User,\tx_remote_group ,Upgrade", "X-Remote-Extra-Scopes"},
	}
	f.Assert(h)
	if d := wantSeen(seenBy(t, a, h), f); d != "" {
		t.Errorf("the apiserver differs: %s", d)
	}
	if diff := cmp.Diff([]string{"close, Upgrade"}, h["Connection"]); diff != "" {
		t.Errorf("Connection (-want +got):\n%s", diff)
	}

	h = http.Header{"Connection": {"x-remote-user"}, "X-Remote-Group": {"g"}}
	(*Forwarded)(nil).Assert(h)
	if len(h) != 0 {
		t.Errorf("asserting no user left %v", h)
	}
	h = http.Header{"Connection": {"Upgrade", "keep-alive"}}
	(*Forwarded)(nil).Assert(h)
	if len(h["Connection"]) != 2 {
		t.Errorf("a Connection that names no identity header became %q", h["Connection"])
	}
}

// checkAsserted is the property of this package: whatever the client sent,
// the apiserver sees exactly f.
func checkAsserted(t testing.TB, h http.Header, f *Forwarded, o ScrubOptions) {
	t.Helper()
	Scrub(h, o)
	for key := range h {
		if forbidden(key, o) {
			t.Errorf("%q is left after Scrub", key)
		}
	}
	f.Assert(h)
	if d := wantSeen(seenBy(t, newRequestheader(t), h), f); d != "" {
		t.Errorf("the apiserver differs: %s", d)
	}
	for key := range h {
		allowed := key == "X-Remote-User" || key == "X-Remote-Group" || key == "X-Remote-Uid" ||
			strings.HasPrefix(key, "X-Remote-Extra-")
		if forbidden(key, ScrubOptions{KeepCookies: true, KeepImpersonation: true}) && !allowed {
			t.Errorf("%q is left after Assert", key)
		}
	}
}

func TestScrubAndAssertProperty(t *testing.T) {
	word := rapid.OneOf(
		rapid.SampledFrom([]string{
			"X-Remote-User", "X-Remote-Group", "X-Remote-Uid", "X-Remote-Extra-Scopes", "Impersonate-User",
			"Impersonate-Extra-A", "Authorization", "Cookie", "X-Real-Ip", "Forwarded", "X-Forwarded-User", "Accept",
		}),
		rapid.StringMatching(`[Xx][-_.][Rr]emote[-_.][A-Za-z%0-9_.-]{0,12}`),
		rapid.String(),
	)
	respell := rapid.Custom(func(t *rapid.T) string {
		key := []byte(word.Draw(t, "key"))
		for i, c := range key {
			switch {
			case c == '-':
				key[i] = rapid.SampledFrom([]byte{'-', '-', '_', '.'}).Draw(t, "dash")
			case rapid.Bool().Draw(t, "upper") && 'a' <= c && c <= 'z':
				key[i] = c - 32
			}
		}
		return string(key)
	})
	values := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]string{"root", "system:masters", "close, x-remote-user"}), rapid.String()), 0, 3)
	rapid.Check(t, func(rt *rapid.T) {
		id, s := drawIdentity(rt)
		f, r := Forward(id, s)
		if r != nil {
			return
		}
		h := http.Header(rapid.MapOfN(respell, values, 0, 12).Draw(rt, "header"))
		if h == nil {
			h = http.Header{}
		}
		if tokens := values.Draw(rt, "connection"); len(tokens) > 0 {
			h["Connection"] = tokens
		}
		o := ScrubOptions{KeepCookies: rapid.Bool().Draw(rt, "cookies"), KeepImpersonation: rapid.Bool().Draw(rt, "impersonation")}
		checkAsserted(t, h, f, o)
	})
}

func FuzzScrubAndAssert(f *testing.F) {
	f.Add("X-Remote-User: root\nx_remote_group: system:masters\nConnection: x-remote-user", "alice", "dev\x00ops", "example.org/a")
	f.Add("X-Remote-Extra-%41: a\nX-Remote-Extra-a: b\nCookie: c", "élodie", "CN=a,OU=b", "a%2fb")
	f.Fuzz(func(t *testing.T, header, name, groups, key string) {
		id := &Identity{Name: name, Groups: strings.Split(groups, "\x00"), Extra: map[string][]string{key: {"v"}}}
		fwd, r := Forward(id, prefixT)
		if r != nil {
			if fwd != nil {
				t.Error("a refused identity was returned")
			}
			return
		}
		for _, canonical := range []bool{false, true} {
			h := http.Header{}
			for line := range strings.SplitSeq(header, "\n") {
				k, v, _ := strings.Cut(line, ": ")
				if canonical {
					k = textproto.CanonicalMIMEHeaderKey(k)
				}
				h[k] = append(h[k], v)
			}
			checkAsserted(t, h, fwd, ScrubOptions{})
		}
		if strings.HasPrefix(fwd.User, "system:") || slices.ContainsFunc(fwd.Groups, func(g string) bool { return strings.HasPrefix(g, "system:") }) {
			t.Error("a reserved name passed")
		}
	})
}

func BenchmarkForward(b *testing.B) {
	plain := &Identity{Name: "alice@example.org", Groups: repeat("platform-team", 10)}
	rich := &Identity{Name: "alice@example.org", Groups: repeat("platform-team", 40), Extra: extra("example.org/tenant", "a", "example.org/session", "b")}
	for name, id := range map[string]*Identity{"10 groups": plain, "40 groups 2 extra": rich} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, r := Forward(id, prefixT); r != nil {
					b.Fatal(r)
				}
			}
		})
	}
}

func benchHeader() http.Header {
	return http.Header{
		"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"kubectl/v1.37.2"},
		"Kubectl-Command": {"kubectl get"}, "Kubectl-Session": {"x"}, "X-Forwarded-For": {"192.0.2.1"},
		"X-Forwarded-Host": {"k8s.example.com"}, "X-Forwarded-Proto": {"https"}, "Via": {"1.1 proxyauth-0"},
	}
}

func BenchmarkAssert(b *testing.B) {
	f, r := Forward(&Identity{Name: "alice", Groups: repeat("dev", 10), Extra: extra("example.org/tenant", "a")}, prefixT)
	if r != nil {
		b.Fatal(r)
	}
	h := benchHeader()
	b.ReportAllocs()
	for b.Loop() {
		f.Assert(h)
	}
}
