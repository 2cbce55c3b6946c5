package identity

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/transport"
	"pgregory.net/rapid"
)

var prefixT = Settings{UserPrefix: "t:", GroupPrefix: "t:"}

func repeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func extra(kv ...string) map[string][]string {
	m := map[string][]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = append(m[kv[i]], kv[i+1])
	}
	return m
}

// ID-2, TOK-10, FWD-04.
func TestForwardRefuses(t *testing.T) {
	messages := map[Reason]string{
		ReasonSystemPrefix:    "has a reserved system: name or group",
		ReasonEmptyUsername:   "has no username for the configured claim",
		ReasonUntransmittable: "has a value it cannot forward",
		ReasonTooLarge:        "is too large to forward",
	}
	with := func(change func(id *Identity)) *Identity {
		id := &Identity{Name: "alice", Groups: []string{"dev", "ops"}}
		change(id)
		return id
	}
	name := func(s string) *Identity { return with(func(id *Identity) { id.Name = s }) }
	groups := func(s ...string) *Identity { return with(func(id *Identity) { id.Groups = s }) }
	extras := func(kv ...string) *Identity { return with(func(id *Identity) { id.Extra = extra(kv...) }) }
	uid := func(s string) *Identity { return with(func(id *Identity) { id.UID = s }) }
	withUID := Settings{UserPrefix: "t:", GroupPrefix: "t:", ForwardUID: true}

	tests := []struct {
		name   string
		id     *Identity
		s      Settings
		reason Reason
		kind   string
	}{
		{"system built from prefix and name", name("tem:admin"), Settings{"sys", "t:", false}, ReasonSystemPrefix, KindUserName},
		{"system built from prefix and group", groups("dev", ":masters"), Settings{"t:", "system", false}, ReasonSystemPrefix, KindGroup},
		{"system group without prefix", groups("system:masters"), Settings{"t:", "", false}, ReasonSystemPrefix, KindGroup},
		{"system before empty name", with(func(id *Identity) { id.Name = ""; id.Groups = []string{"system:x"} }), Settings{}, ReasonSystemPrefix, KindGroup},
		{"system before too large", groups(append(repeat("g", 65), ":x")...), Settings{"t:", "system", false}, ReasonSystemPrefix, KindGroup},

		{"empty name", name(""), prefixT, ReasonEmptyUsername, KindUserName},
		{"blank name", name(" \t\u2003\u00a0\n"), prefixT, ReasonEmptyUsername, KindUserName},
		{"null username", with(func(id *Identity) { id.EmptyName = true }), prefixT, ReasonEmptyUsername, KindUserName},
		{"empty name before bad group", with(func(id *Identity) { id.Name = ""; id.Groups = []string{"\n"} }), prefixT, ReasonEmptyUsername, KindUserName},

		{"line break in name", name("a\r\nX-Remote-Group: system:masters"), prefixT, ReasonUntransmittable, KindUserName},
		{"NUL in group", groups("dev", "x\x00y"), prefixT, ReasonUntransmittable, KindGroup},
		{"DEL in group", groups("a\x7f"), prefixT, ReasonUntransmittable, KindGroup},
		{"tab in name", name("a\tb"), prefixT, ReasonUntransmittable, KindUserName},
		{"C1 control in name", name("a\u0085b"), prefixT, ReasonUntransmittable, KindUserName},
		{"C1 control after ASCII and UTF-8", name("aé\u009fb"), prefixT, ReasonUntransmittable, KindUserName},
		{"invalid UTF-8 name", name("al\xffice"), prefixT, ReasonUntransmittable, KindUserName},
		{"half a rune at the end", groups("dev\xc3"), prefixT, ReasonUntransmittable, KindGroup},
		{"space before name, behind the prefix", name(" alice"), prefixT, ReasonUntransmittable, KindUserName},
		{"space after name", name("alice "), prefixT, ReasonUntransmittable, KindUserName},
		{"ideographic space after group", groups("dev\u3000"), prefixT, ReasonUntransmittable, KindGroup},
		{"no-break space before group", groups("\u00a0dev"), prefixT, ReasonUntransmittable, KindGroup},
		{"line separator after group", groups("dev\u2028"), prefixT, ReasonUntransmittable, KindGroup},
		{"edge space from the prefix", name("alice"), Settings{" t:", "t:", false}, ReasonUntransmittable, KindUserName},
		{"control from the prefix", name("alice"), Settings{"t:", "t\n", false}, ReasonUntransmittable, KindGroup},
		{"empty group", groups("dev", ""), prefixT, ReasonUntransmittable, KindGroup},
		{"empty extra value", extras("example.org/a", ""), prefixT, ReasonUntransmittable, KindExtraValue},
		{"line break in extra value", extras("example.org/a", "x\ny"), prefixT, ReasonUntransmittable, KindExtraValue},
		{"edge space in extra value", extras("example.org/a", "x "), prefixT, ReasonUntransmittable, KindExtraValue},
		{"upper-case extra key", extras("example.org/A", "x"), prefixT, ReasonUntransmittable, KindExtraKey},
		{"empty extra key", extras("", "x"), prefixT, ReasonUntransmittable, KindExtraKey},
		{"line break in extra key", extras("example.org/a\n", "x"), prefixT, ReasonUntransmittable, KindExtraKey},
		{"reserved extra key", extras("authentication.kubernetes.io/pod-name", "x"), prefixT, ReasonUntransmittable, KindExtraKey},
		{"reserved extra domain itself", extras("k8s.io/x", "x"), prefixT, ReasonUntransmittable, KindExtraKey},
		{"key before value", extras("a/a", "\n", "B/b", "x"), prefixT, ReasonUntransmittable, KindExtraKey},
		{"bad uid", uid("1\n2"), withUID, ReasonUntransmittable, KindUID},
		{"edge space in uid", uid("1 "), withUID, ReasonUntransmittable, KindUID},
		{"untransmittable before too large", groups(append(repeat("g", 65), "")...), prefixT, ReasonUntransmittable, KindGroup},

		{"65 groups", groups(repeat("g", 65)...), prefixT, ReasonTooLarge, KindGroups},
		{"overage", with(func(id *Identity) { id.Overage = true }), prefixT, ReasonTooLarge, KindGroups},
		{"long name", name(strings.Repeat("n", 8191)), prefixT, ReasonTooLarge, KindTotal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, r := Forward(tt.id, tt.s)
			if f != nil || r == nil {
				t.Fatalf("Forward = %v, %v, want a refusal", f, r)
			}
			if r.Reason != tt.reason || r.Kind != tt.kind {
				t.Errorf("refused with %s (%s), want %s (%s)", r.Reason, r.Kind, tt.reason, tt.kind)
			}
			message := r.Error()
			if !strings.Contains(message, messages[tt.reason]) || !strings.Contains(message, tt.kind) {
				t.Errorf("message %q does not hold %q and %q", message, messages[tt.reason], tt.kind)
			}
		})
	}
}

// ID-1, TOK-10: what passes, and as what.
func TestForwardAccepts(t *testing.T) {
	tests := []struct {
		name string
		id   Identity
		s    Settings
		want Forwarded
	}{
		{
			"prefixes", Identity{Name: "alice", Groups: []string{"dev", "ops"}, UID: "7"}, prefixT,
			Forwarded{User: "t:alice", Groups: []string{"t:dev", "t:ops"}},
		},
		{
			"system group behind a prefix", Identity{Name: "system:admin", Groups: []string{"system:masters"}}, prefixT,
			Forwarded{User: "t:system:admin", Groups: []string{"t:system:masters"}},
		},
		{
			"another case is no system name", Identity{Name: "System:x"}, Settings{},
			Forwarded{User: "System:x", Groups: []string{}},
		},
		{
			"UTF-8 and inner space", Identity{Name: "élodie martin", Groups: []string{"CN=ops,OU=eu"}}, prefixT,
			Forwarded{User: "t:élodie martin", Groups: []string{"t:CN=ops,OU=eu"}},
		},
		{
			"uid", Identity{Name: "alice", UID: "7"}, Settings{"t:", "t:", true},
			Forwarded{User: "t:alice", Groups: []string{}, UID: "7"},
		},
		{
			"a uid not forwarded is not looked at", Identity{Name: "alice", UID: "\n"}, prefixT,
			Forwarded{User: "t:alice", Groups: []string{}},
		},
		{
			"group of spaces inside", Identity{Name: "a", Groups: []string{"x  y"}}, prefixT,
			Forwarded{User: "t:a", Groups: []string{"t:x  y"}},
		},
		{
			"extra", Identity{Name: "alice", Extra: extra("example.org/a", "1", "example.org/a", "2")}, prefixT,
			Forwarded{User: "t:alice", Groups: []string{}, Extra: extra("example.org/a", "1", "example.org/a", "2")},
		},
		{
			"a domain that only ends like a reserved one", Identity{Name: "alice", Extra: extra("notk8s.io/a", "1")}, prefixT,
			Forwarded{User: "t:alice", Groups: []string{}, Extra: extra("notk8s.io/a", "1")},
		},
		{
			"64 groups", Identity{Name: "alice", Groups: repeat("g", 64)}, prefixT,
			Forwarded{User: "t:alice", Groups: repeat("t:g", 64)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, r := Forward(&tt.id, tt.s)
			if r != nil {
				t.Fatal(r)
			}
			got := Forwarded{User: f.User, UID: f.UID, Groups: f.Groups, Extra: f.Extra}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(Forwarded{})); diff != "" {
				t.Errorf("forwarded identity (-want +got):\n%s", diff)
			}
		})
	}
}

// ID-2: 8192 bytes pass, 8193 do not, whatever they are made of.
func TestForwardSizeCounts(t *testing.T) {
	parts := map[string]func(n int) (Identity, Settings){
		"name": func(n int) (Identity, Settings) { return Identity{Name: strings.Repeat("x", n)}, Settings{} },
		"user prefix": func(n int) (Identity, Settings) {
			return Identity{Name: "x"}, Settings{UserPrefix: strings.Repeat("p", n-1)}
		},
		"group": func(n int) (Identity, Settings) {
			return Identity{Name: "x", Groups: []string{strings.Repeat("g", n-1)}}, Settings{}
		},
		"group prefixes": func(n int) (Identity, Settings) {
			return Identity{Name: strings.Repeat("x", n-8188), Groups: repeat("g", 4)}, Settings{GroupPrefix: strings.Repeat("p", 2046)}
		},
		"extra value": func(n int) (Identity, Settings) {
			return Identity{Name: "x", Extra: extra("a", strings.Repeat("v", n-2))}, Settings{}
		},
		"extra key, once for its values": func(n int) (Identity, Settings) {
			return Identity{Name: "x", Extra: map[string][]string{strings.Repeat("k", n-3): {"v", "w"}}}, Settings{}
		},
		"uid": func(n int) (Identity, Settings) {
			return Identity{Name: "x", UID: strings.Repeat("u", n-1)}, Settings{ForwardUID: true}
		},
		"bytes, not characters": func(n int) (Identity, Settings) {
			return Identity{Name: strings.Repeat("é", 4000) + strings.Repeat("x", n-8000)}, Settings{}
		},
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			id, s := part(maxBytes)
			if _, r := Forward(&id, s); r != nil {
				t.Errorf("%d bytes: %v", maxBytes, r)
			}
			id, s = part(maxBytes + 1)
			if _, r := Forward(&id, s); r == nil || r.Reason != ReasonTooLarge {
				t.Errorf("%d bytes: %v, want %s", maxBytes+1, r, ReasonTooLarge)
			}
		})
	}
	id := Identity{Name: "x", UID: strings.Repeat("u", 2*maxBytes)}
	if _, r := Forward(&id, Settings{}); r != nil {
		t.Errorf("a uid that is not forwarded counted: %v", r)
	}
}

// unicode.IsSpace and unicode.IsControl are what ID-2 calls White_Space and Cc.
func TestUnicodeProperties(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if unicode.IsSpace(r) != unicode.Is(unicode.White_Space, r) {
			t.Errorf("IsSpace and White_Space differ on %U", r)
		}
		if unicode.IsControl(r) != unicode.Is(unicode.Cc, r) {
			t.Errorf("IsControl and Cc differ on %U", r)
		}
	}
}

// No refusal holds a piece of the value it is about (ID-2, OBS-01).
func TestViolationHoldsNoValue(t *testing.T) {
	id := &Identity{Name: "topsecretvalue\n", Groups: []string{"topsecretvalue"}}
	_, r := Forward(id, Settings{UserPrefix: "t:"})
	if r == nil || strings.Contains(r.Error(), "secret") {
		t.Errorf("refusal %v", r)
	}
}

func TestCheckUsername(t *testing.T) {
	for name, id := range map[string]*Identity{
		"empty": {}, "blank": {Name: "\u00a0"}, "null": {Name: "x", EmptyName: true},
	} {
		t.Run(name, func(t *testing.T) {
			if r := CheckUsername(id); r == nil || r.Reason != ReasonEmptyUsername {
				t.Errorf("CheckUsername = %v", r)
			}
		})
	}
	// Passthrough sends no identity, so only the empty name matters there.
	if r := CheckUsername(&Identity{Name: "system:admin\n", Groups: []string{""}, Overage: true}); r != nil {
		t.Errorf("CheckUsername = %v", r)
	}
}

// ID-3: the apiserver reads back every extra key that Forward lets through.
func TestExtraKeyRoundTrip(t *testing.T) {
	a := newRequestheader(t)
	keys := []string{
		"scopes", "example.org/a", "example.org/a%2fb", "example.org/a%", "100%", "a:b", "a@b=c", "a_b", "é/ü",
		"a b", "a/b/c", "~|^`", "{x}", "\"x\"", "日本/語", "a,b", "%41",
	}
	for _, key := range keys {
		t.Run(key, func(t *testing.T) {
			f, r := Forward(&Identity{Name: "alice", Extra: extra(key, "v", key, "w")}, prefixT)
			if r != nil {
				t.Fatal(r)
			}
			h := http.Header{}
			f.Assert(h)
			if d := wantSeen(seenBy(t, a, h), f); d != "" {
				t.Errorf("the apiserver differs: %s", d)
			}
		})
	}
}

// Assert writes what client-go's own front-proxy code writes.
func TestAssertEqualsClientGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id, s := drawIdentity(t)
		f, r := Forward(id, s)
		if r != nil {
			return
		}
		got := http.Header{}
		f.Assert(got)
		want := &http.Request{Header: http.Header{}}
		transport.SetAuthProxyHeaders(want, f.User, f.UID, f.Groups, f.Extra)
		if diff := cmp.Diff(want.Header, got); diff != "" {
			t.Errorf("headers (-client-go +ours):\n%s", diff)
		}
	})
}

// drawIdentity draws mostly transmittable identities, some of them odd.
func drawIdentity(t *rapid.T) (*Identity, Settings) {
	value := rapid.OneOf(
		rapid.StringMatching(`[a-z:@.é日][a-zA-Z0-9:,;=é日 -]{0,12}[a-z0-9é]`),
		rapid.String(),
		rapid.SampledFrom([]string{"system:masters", "", " ", "x\x00", "\xff", "élodie"}),
	)
	plain := rapid.StringMatching(`[a-z:@.é日][a-zA-Z0-9:,;=é日 -]{0,12}[a-z0-9é]`)
	pick := plain
	if rapid.IntRange(0, 3).Draw(t, "odd") == 0 {
		pick = value
	}
	key := rapid.StringMatching(`[a-z.]{1,8}/[a-z0-9._~%:@ é-]{0,8}[a-z]`)
	id := &Identity{
		Name:   pick.Draw(t, "name"),
		UID:    pick.Draw(t, "uid"),
		Groups: rapid.SliceOfN(pick, 0, 6).Draw(t, "groups"),
		Extra:  rapid.MapOfN(key, rapid.SliceOfN(pick, 0, 3), 0, 4).Draw(t, "extra"),
	}
	s := Settings{
		UserPrefix:  rapid.SampledFrom([]string{"t:", "proxyauth:", "sys", "é-"}).Draw(t, "user prefix"),
		GroupPrefix: rapid.SampledFrom([]string{"t:", "g/", "system"}).Draw(t, "group prefix"),
		ForwardUID:  rapid.Bool().Draw(t, "forward uid"),
	}
	return id, s
}

// An identity shared between requests is not changed by forwarding it.
func TestForwardLeavesIdentityAlone(t *testing.T) {
	id := &Identity{Name: "alice", Groups: []string{"dev", "ops"}, Extra: extra("a/b", "c")}
	f, r := Forward(id, prefixT)
	if r != nil {
		t.Fatal(r)
	}
	h := http.Header{}
	f.Assert(h)
	for key := range maps.Clone(h) {
		h.Add(key, "another")
		h.Set(key, "changed")
	}
	again := http.Header{}
	f.Assert(again)
	if got := again["X-Remote-Group"]; !slices.Equal(got, []string{"t:dev", "t:ops"}) {
		t.Errorf("groups %q after another request's header was changed", got)
	}
	if id.Groups[0] != "dev" || id.Extra["a/b"][0] != "c" || again.Get("X-Remote-User") != "t:alice" {
		t.Error("the identity was changed")
	}
}
