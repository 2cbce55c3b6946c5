package compile

import (
	"errors"
	"testing"
)

func TestURLs(t *testing.T) {
	for _, tt := range []struct {
		check func(string) error
		url   string
		want  error
	}{
		{checkIssuerURL, "https://idp.example.test", nil},
		{checkIssuerURL, "https://idp.example.test:8443/realms/a%20b/", nil},
		{checkIssuerURL, "https://[2001:db8::1]/x", nil},
		{checkIssuerURL, "http://idp.example.test", errURLScheme},
		{checkIssuerURL, "HTTPS://idp.example.test", errURLScheme},
		{checkIssuerURL, "https://", errURLHost},
		{checkIssuerURL, "https://idp.exämple.test", errURLHost},
		{checkIssuerURL, "https://[fe80::1%25eth0]", errURLHost},
		{checkIssuerURL, "https://idp.example.test:0", errURLPort},
		{checkIssuerURL, "https://idp.example.test:65536", errURLPort},
		{checkIssuerURL, "https://user:hunter2@idp.example.test", errURLUser},
		{checkIssuerURL, "https://idp.example.test?a=b", errURLQuery},
		{checkIssuerURL, "https://idp.example.test#a", errURLFragment},
		{checkIssuerURL, "https://idp.example.test/a b", errURLEscape},
		{checkIssuerURL, "https://idp.example.test/%zz", errURLEscape},
		{checkTokenURL, "https://idp.example.test/token?tenant=a", nil},
		{checkTokenURL, "https://idp.example.test/token?a#b", errURLFragment},
		{checkTokenURL, "https://idp.example.test/token?a b", errURLQueryEscape},
		{checkTokenURL, "http://idp.example.test/token", errURLScheme},
		{checkURI, "urn:example:resource", nil},
		{checkURI, "https://api.example.test", nil},
		{checkURI, "resource", errNoURI},
		{checkURI, "https://api.example.test#a", errNoURI},
	} {
		if err := tt.check(tt.url); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.url, err, tt.want)
		}
	}
}

func TestCheckBase(t *testing.T) {
	for base, want := range map[string]error{
		"": nil, "/k8s": nil, "/k8s/clusters/c-1": nil, "/a%20b": nil,
		"/a//b": errURLEmpty, "/a%2F%2Fb": errURLEmpty, "/../a": errURLDots, "/a/%2e%2e": errURLDots, "/a/.": errURLDots, `/a\b`: errURLEscape,
	} {
		if err := checkBase(base); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", base, err, want)
		}
	}
}
