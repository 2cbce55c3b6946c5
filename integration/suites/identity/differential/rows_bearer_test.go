package differential

import (
	"net/http"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
)

func bearers() []section {
	return []section{
		{basic, []row{
			{"scheme in another case", line("bEARER ", ""), alice, same},
			{"two spaces", line("Bearer  ", ""), "anonymous", but("401", "no bearer token")},
			{"a tab", line("Bearer\t", ""), "anonymous", but("401", "no bearer token")},
			{"something after the token", line("Bearer ", " x"), alice, but("401", `"Bearer  t", "Bearer t x"`)},
			{"two lines, the good one first", authorization(func(token string) []string { return []string{"Bearer " + token, "Bearer x"} }), alice, but("401", "two Authorization lines")},
			{"two lines, the good one last", authorization(func(token string) []string { return []string{"Bearer x", "Bearer " + token} }), "401", same},
			{"the same line twice", authorization(func(token string) []string { return []string{"Bearer " + token, "Bearer " + token} }), alice, but("401", "two Authorization lines")},
			{"no token", authorization(func(string) []string { return []string{"Bearer "} }), "anonymous", but("401", "no bearer token")},
			{"another scheme", line("Basic ", ""), "anonymous", but("401", "no bearer token")},
			{"no line", authorization(func(string) []string { return nil }), "anonymous", but("401", "no bearer token")},
			{"a comma", line("Bearer ", ","), "401", same},
			{"padding", line("Bearer ", "="), "401", same},
			{"five parts", line("Bearer ", ".x.y"), "401", same},
			{"an opaque token", authorization(func(string) []string { return []string{"Bearer opaque"} }), "401", same},
			{"JSON serialization", authorization(jsonSerialization), "401", same},
			{"bytes that no token has", line("Bearer ", "\u00e9"), "401", same},
			{"a quote", line("Bearer \"", "\""), "401", same},
			{"four parts", line("Bearer ", ".x"), "401", same},
			{"two parts", authorization(func(token string) []string { return []string{"Bearer " + token[:strings.LastIndex(token, ".")]} }), "401", same},
		}},
	}
}

func entries() []section {
	protocols := func(list func(token string) []string) recipe {
		return carried(func(token string) http.Header { return upgrade(nil, list(token)...) })
	}
	return []section{
		{basic, []row{
			{"entry and a protocol", protocols(func(t string) []string { return []string{entry(t), "v4.channel.k8s.io"} }), alice, same},
			{"a protocol and entry", protocols(func(t string) []string { return []string{"v4.channel.k8s.io", entry(t)} }), alice, same},
			{"entry alone", protocols(func(t string) []string { return []string{entry(t)} }), "401", same},
			{"entry next to nothing", protocols(func(t string) []string { return []string{entry(t), ""} }), alice, but("401", `entry next to "" only`)},
			{"two entries", protocols(func(t string) []string { return []string{entry(t), entry(t), "x"} }), "401", same},
			{"entry in upper case", protocols(func(t string) []string {
				return []string{strings.ToUpper(entryPrefix) + entry(t)[len(entryPrefix):], "x"}
			}), "anonymous", but("401", "entry spelled otherwise")},
			{"entry with padding", protocols(func(t string) []string { return []string{entry(t) + "=", "x"} }), "401", same},
			{"entry of nothing", protocols(func(string) []string { return []string{entryPrefix, "x"} }), "anonymous", but("401", "no bearer token")},
			{"no entry", protocols(func(string) []string { return []string{"v4.channel.k8s.io"} }), "anonymous", but("401", "no bearer token")},
			{"entry without an upgrade", carried(func(t string) http.Header { return http.Header{"Sec-Websocket-Protocol": {entry(t) + ", x"}} }), "anonymous", but("401", "entry alone on a GET")},
			{"entry and the same Authorization", carried(func(t string) http.Header { return upgrade(kube.Bearer(t), entry(t), "x") }), alice, same},
			{"entry and another Authorization", carried(func(t string) http.Header { return upgrade(kube.Bearer("x"), entry(t), "x") }), alice, but("401", "Authorization and entry")},
			{"Authorization and another entry", carried(func(t string) http.Header { return upgrade(kube.Bearer(t), entry("x"), "x") }), alice, but("401", "Authorization and entry")},
		}},
	}
}
