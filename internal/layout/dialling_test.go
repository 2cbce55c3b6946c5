package layout

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// dialling are the packages, and what of them opens connections or is a client
// that does.
var dialling = map[string][]string{
	"net":        {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer"},
	"crypto/tls": {"Dial", "DialWithDialer", "Dialer"},
	"net/http":   {"Transport", "Client", "DefaultTransport", "DefaultClient", "Get", "Head", "Post", "PostForm"},
}

// dials are the files that may use them, with the reason why no connection from
// there gets round denied_targets.
var dials = map[string]string{
	"caddymodule/idp/client.go":    "its dialer is that of a policy, for all that is asked of providers",
	"caddymodule/upstream/pair.go": "Direct is the dialer of a policy, for relay and probes",
	"internal/egress/egress.go":    "makes the dialer that judges",
}

// denied_targets holds because every connection on behalf of an object is opened
// by the dialer of package egress: a new client or dialer elsewhere needs a row
// above. The hub and the storage are reached by client-go, at the address that
// the proxy admin configures.
func TestDialsAreJudged(t *testing.T) {
	used := map[string]bool{}
	for _, s := range theTree(t).sources {
		if s.isTest() || strings.HasSuffix(s.dir(), "test") {
			continue
		}
		names := map[string][]string{} // what opens connections, by the name of its package in this file
		for _, path := range s.imports() {
			if functions := dialling[path]; functions != nil {
				names[path[strings.LastIndexByte(path, '/')+1:]] = functions
			}
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := selector.X.(*ast.Ident); ok && slices.Contains(names[pkg.Name], selector.Sel.Name) {
				used[s.path] = true
				if dials[s.path] == "" {
					t.Errorf("%s uses %s.%s: who judges where it connects to?", s.path, pkg.Name, selector.Sel.Name)
				}
			}
			return true
		})
	}
	for path := range dials {
		if !used[path] {
			t.Errorf("%s opens no connection", path)
		}
	}
}
