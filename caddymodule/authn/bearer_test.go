package authn

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

func entry(token string) string { return protocolPrefix + issuertest.Encode([]byte(token)) }

// visible is every character that a bearer may hold (AUTH-1).
func visible() string {
	var all []byte
	for c := byte('!'); c <= '~'; c++ {
		all = append(all, c)
	}
	return string(all)
}

// AUTH-1, AUTH-2, HDR-06.
func TestBearer(t *testing.T) {
	const token = "aaa.bbb.ccc"
	type lines = []string
	tests := []struct {
		name      string
		header    http.Header
		websocket bool
		want      string // the token, empty for a refusal
		reason    string
		protocols lines
	}{
		{name: "plain", header: http.Header{"Authorization": {"Bearer " + token}}, want: token},
		{name: "lower-case scheme", header: http.Header{"Authorization": {"bearer " + token}}, want: token},
		{name: "upper-case scheme", header: http.Header{"Authorization": {"BEARER " + token}}, want: token},
		{name: "raw map key", header: http.Header{"authorization": {"Bearer " + token}}, want: token},
		{name: "space around", header: http.Header{"Authorization": {" \tBearer " + token + " "}}, want: token},
		{name: "every character of a b64token", header: http.Header{"Authorization": {"Bearer aZ09-._~+/=="}}, want: "aZ09-._~+/=="},
		{name: "Rancher's", header: http.Header{"Authorization": {"Bearer token-x7k2p:4jq9"}}, want: "token-x7k2p:4jq9"},
		{name: "every visible character", header: http.Header{"Authorization": {"Bearer " + visible()}}, want: visible()},
		{name: "nothing", header: http.Header{}, reason: errNoCredential.Reason},
		{name: "no line", header: http.Header{"Authorization": {}}, reason: errNoCredential.Reason},
		{name: "empty", header: http.Header{"Authorization": {""}}, reason: errNoCredential.Reason},
		{name: "Basic", header: http.Header{"Authorization": {"Basic YTpi"}}, reason: errScheme.Reason},
		{name: "Negotiate", header: http.Header{"Authorization": {"Negotiate"}}, reason: errScheme.Reason},
		{name: "scheme glued to the token", header: http.Header{"Authorization": {"Bearer" + token}}, reason: errScheme.Reason},
		{name: "scheme in other letters", header: http.Header{"Authorization": {"ＢＥＡＲＥＲ " + token}}, reason: errScheme.Reason},
		{name: "tab after the scheme", header: http.Header{"Authorization": {"Bearer\t" + token}}, reason: errScheme.Reason},
		{name: "scheme alone", header: http.Header{"Authorization": {"Bearer"}}, reason: errMalformed.Reason},
		{name: "scheme and space", header: http.Header{"Authorization": {"Bearer "}}, reason: errMalformed.Reason},
		{name: "two spaces", header: http.Header{"Authorization": {"Bearer  " + token}}, reason: errMalformed.Reason},
		{name: "a word after the token", header: http.Header{"Authorization": {"Bearer " + token + " x"}}, reason: errMalformed.Reason},
		{name: "comma list", header: http.Header{"Authorization": {"Bearer " + token + ",Bearer " + token}}, reason: errMalformed.Reason},
		{name: "control character", header: http.Header{"Authorization": {"Bearer a\x00b"}}, reason: errMalformed.Reason},
		{name: "line break", header: http.Header{"Authorization": {"Bearer a\r\nb"}}, reason: errMalformed.Reason},
		{name: "not ASCII", header: http.Header{"Authorization": {"Bearer é"}}, reason: errMalformed.Reason},
		{name: "longest", header: http.Header{"Authorization": {"Bearer " + strings.Repeat("a", maxToken)}}, want: strings.Repeat("a", maxToken)},
		{name: "too long", header: http.Header{"Authorization": {"Bearer " + strings.Repeat("a", maxToken+1)}}, reason: errMalformed.Reason},
		{name: "two lines", header: http.Header{"Authorization": {"Bearer " + token, "Bearer x"}}, reason: errConflict.Reason},
		{name: "two equal lines", header: http.Header{"Authorization": {"Bearer " + token, "Bearer " + token}}, reason: errConflict.Reason},
		{name: "two lines, one Basic", header: http.Header{"Authorization": {"Basic x", "Bearer " + token}}, reason: errConflict.Reason},
		{name: "two spellings of the key", header: http.Header{"Authorization": {"Bearer " + token}, "AUTHORIZATION": {"Bearer " + token}}, reason: errConflict.Reason},
		{name: "other places do not count", header: http.Header{"Cookie": {"token=" + token}, "X-Authorization": {"Bearer " + token}, "Proxy-Authorization": {"Bearer " + token}}, reason: errNoCredential.Reason},

		{name: "entry", websocket: true, want: token, protocols: lines{"v5.channel.k8s.io"},
			header: http.Header{protocolHeader: {entry(token) + ", v5.channel.k8s.io"}}},
		{name: "entry last", websocket: true, want: token, protocols: lines{"v5.channel.k8s.io, v4.channel.k8s.io"},
			header: http.Header{protocolHeader: {"v5.channel.k8s.io,v4.channel.k8s.io," + entry(token)}}},
		{name: "entry in the middle", websocket: true, want: token, protocols: lines{"b, a"},
			header: http.Header{protocolHeader: {"b," + entry(token) + ",a"}}},
		{name: "entry on a line of its own", websocket: true, want: token, protocols: lines{"c,  b", "a"},
			header: http.Header{protocolHeader: {"c,  b", entry(token), "a"}}},
		{name: "entry padded with white space", websocket: true, want: token, protocols: lines{"a"},
			header: http.Header{protocolHeader: {"\u00a0 " + entry(token) + "\t,a"}}},
		{name: "entry of an opaque token", websocket: true, want: "opaque", protocols: lines{"a"},
			header: http.Header{protocolHeader: {entry("opaque") + ",a"}}},
		{name: "entry and the same bearer", websocket: true, want: token, protocols: lines{"a"},
			header: http.Header{"Authorization": {"Bearer " + token}, protocolHeader: {entry(token) + ",a"}}},
		{name: "entry and another bearer", websocket: true, reason: errConflict.Reason, protocols: lines{"a"},
			header: http.Header{"Authorization": {"Bearer x"}, protocolHeader: {entry(token) + ",a"}}},
		{name: "entry and Basic", websocket: true, reason: errScheme.Reason, protocols: lines{"a"},
			header: http.Header{"Authorization": {"Basic x"}, protocolHeader: {entry(token) + ",a"}}},
		{name: "entry and an empty Authorization", websocket: true, reason: errNoCredential.Reason, protocols: lines{"a"},
			header: http.Header{"Authorization": {""}, protocolHeader: {entry(token) + ",a"}}},
		{name: "entry alone", websocket: true, reason: errMalformed.Reason,
			header: http.Header{protocolHeader: {entry(token)}}},
		{name: "entry next to nothing", websocket: true, reason: errMalformed.Reason,
			header: http.Header{protocolHeader: {entry(token) + ", ,"}}},
		{name: "two entries", websocket: true, reason: errConflict.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {entry(token) + "," + entry(token) + ",a"}}},
		{name: "two entries on two lines", websocket: true, reason: errConflict.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {entry(token), "a", entry("x")}}},
		{name: "padded base64", websocket: true, reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {protocolPrefix + base64.URLEncoding.EncodeToString([]byte("aaaa")) + ",a"}}},
		{name: "standard base64", websocket: true, reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {protocolPrefix + "a+b/,a"}}},
		{name: "not UTF-8", websocket: true, reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {protocolPrefix + issuertest.Encode([]byte{0xff, 0xfe}) + ",a"}}},
		{name: "UTF-8 that is no token", websocket: true, reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {entry("a b") + ",a"}}},
		{name: "empty entry", websocket: true, reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {protocolPrefix + ",a"}}},
		{name: "bad entry next to a good bearer", websocket: true, reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{"Authorization": {"Bearer " + token}, protocolHeader: {protocolPrefix + ",a"}}},
		{name: "entry in another case", websocket: true, reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {strings.ToUpper(protocolPrefix) + issuertest.Encode([]byte(token)) + ",a"}}},
		{name: "entry under another spelling of the header", websocket: true, reason: errMalformed.Reason,
			header: http.Header{"Sec_WebSocket_Protocol": {entry(token) + ",a"}}},
		{name: "entry on a plain request", reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{protocolHeader: {entry(token) + ",a"}}},
		{name: "entry and the same bearer on a plain request", reason: errMalformed.Reason, protocols: lines{"a"},
			header: http.Header{"Authorization": {"Bearer " + token}, protocolHeader: {entry(token) + ",a"}}},
		{name: "protocols without an entry are left as they are", websocket: true, want: token, protocols: lines{" b ,,a", "", "c"},
			header: http.Header{"Authorization": {"Bearer " + token}, protocolHeader: {" b ,,a", "", "c"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token, err := Bearer(tt.header, tt.websocket)
			if token != tt.want || reasonOf(err) != tt.reason {
				t.Errorf("got %.20q, %v; want %.20q, %s", token, err, tt.want, tt.reason)
			}
			if diff := cmp.Diff(tt.protocols, lines(tt.header[protocolHeader])); diff != "" {
				t.Errorf("protocols: %s", diff)
			}
			checkNoCredential(t, tt.header)
		})
	}
}

// reasonOf is the reason of an Unauthenticated, empty for no error.
func reasonOf(err error) string {
	var refused *Unauthenticated
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return refused.Reason
	}
	return err.Error()
}

// checkNoCredential fails when h still carries a credential in any spelling.
func checkNoCredential(t interface{ Errorf(string, ...any) }, h http.Header) {
	for key, values := range h {
		folded := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(key))
		if folded == "authorization" {
			t.Errorf("%s is left", key)
		}
		if folded != strings.ToLower(protocolHeader) {
			continue
		}
		for _, value := range values {
			for protocol := range strings.SplitSeq(value, ",") {
				if strings.HasPrefix(strings.ToLower(strings.TrimSpace(protocol)), protocolPrefix) {
					t.Errorf("a token entry is left in %s", key)
				}
			}
		}
	}
}

// The entries of other protocols keep their order, wherever the token was.
func TestBearerKeepsProtocols(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		others := rapid.SliceOfN(rapid.StringMatching(`[a-z0-9.]{1,8}`), 1, 6).Draw(t, "others")
		at := rapid.IntRange(0, len(others)).Draw(t, "at")
		all := slices.Insert(slices.Clone(others), at, entry("aaa.bbb.ccc"))
		h := http.Header{}
		for len(all) > 0 {
			n := rapid.IntRange(1, len(all)).Draw(t, "n")
			h.Add(protocolHeader, strings.Join(all[:n], rapid.SampledFrom([]string{",", ", ", " ,\t"}).Draw(t, "comma")))
			all = all[n:]
		}
		token, err := Bearer(h, true)
		if token != "aaa.bbb.ccc" || err != nil {
			t.Fatalf("got %q, %v", token, err)
		}
		var left []string
		for _, line := range h[protocolHeader] {
			for protocol := range strings.SplitSeq(line, ",") {
				left = append(left, strings.TrimSpace(protocol))
			}
		}
		if diff := cmp.Diff(others, left); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzBearer(f *testing.F) {
	f.Add("Authorization", "Bearer a.b.c", "", "Sec-Websocket-Protocol", entry("a.b.c")+",v5", "", true)
	f.Add("authorization", "Bearer a", "Bearer a", "Sec_WebSocket_Protocol", "x", protocolPrefix, true)
	f.Add("Authorization", "basic", "", "", "", "", false)
	f.Fuzz(func(t *testing.T, key1, value1, value2, key2, value3, value4 string, websocket bool) {
		h := http.Header{key1: {value1, value2}}
		h[key2] = append(h[key2], value3, value4)
		token, err := Bearer(h, websocket)
		checkNoCredential(t, h)
		var refused *Unauthenticated
		switch {
		case err == nil && !idp.IsBearer(token):
			t.Errorf("%q is no token", token)
		case err != nil && (token != "" || !errors.As(err, &refused)):
			t.Errorf("got %q, %v", token, err)
		}
	})
}
