package access

import (
	"errors"
	"strings"
	"testing"
)

func TestParsePath(t *testing.T) {
	tests := []struct {
		raw   string
		path  string
		empty bool
		err   error
	}{
		{raw: "/", path: "/"},
		{raw: "/api/v1/", path: "/api/v1/"},
		{raw: "/a%2Fb%2f", path: "/a/b/"},
		{raw: "/a%252Fb", path: "/a%2Fb"},
		{raw: "/a+b%2Bc", path: "/a+b+c"},
		{raw: "/a/...", path: "/a/..."},
		{raw: "/a/.b./c", path: "/a/.b./c"},
		{raw: "/%252e%252e", path: "/%2e%2e"},

		{raw: "//", path: "//", empty: true},
		{raw: "//a", path: "//a", empty: true},
		{raw: "/a//", path: "/a//", empty: true},
		{raw: "/a//b", path: "/a//b", empty: true},
		{raw: "/%2F", path: "//", empty: true},
		{raw: "/a/%2fb", path: "/a//b", empty: true},
		{raw: "/a/%2F", path: "/a//", empty: true},

		{raw: "/.", err: errDotSegment},
		{raw: "/..", err: errDotSegment},
		{raw: "/../x", err: errDotSegment},
		{raw: "/a/./b", err: errDotSegment},
		{raw: "/a/../b", err: errDotSegment},
		{raw: "/a/..", err: errDotSegment},
		{raw: "/a/../", err: errDotSegment},
		{raw: "//..//", err: errDotSegment},
		{raw: "/a/%2e%2E/b", err: errDotSegment},
		{raw: "/a/.%2e", err: errDotSegment},
		{raw: "/a%2F..%2Fb", err: errDotSegment},
		{raw: "/a%2F%2e", err: errDotSegment},

		{raw: "/a%", err: errBadEscape},
		{raw: "/a%2", err: errBadEscape},
		{raw: "/%zz/..", err: errBadEscape},
		{raw: "", err: errNoPath},
		{raw: "a/b", err: errNoPath},
		{raw: "*", err: errNoPath},
		{raw: "https://x/y", err: errNoPath},
	}
	for _, tt := range tests {
		t.Run(tt.raw, func(t *testing.T) {
			p, err := ParsePath(tt.raw)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if IsDotSegment(err) != (tt.err == errDotSegment) {
				t.Errorf("IsDotSegment(%v)", err)
			}
			if p.Decoded != tt.path || p.EmptySegment != tt.empty {
				t.Errorf("ParsePath = %+v", p)
			}
		})
	}
	if !strings.Contains(errDotSegment.Error(), "path has a dot segment") {
		t.Error("the message of section 13 changed")
	}
}
