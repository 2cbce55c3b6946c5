package layout

import (
	"slices"
	"strings"
	"testing"
)

type room struct {
	name string
	may  []string
}

// rooms says which packages of the module each package may import. A pattern is a
// package, or with /... a package and everything below it. The first row that
// fits a package counts. Every package needs a row.
var rooms = []room{
	// The Caddy modules delegate to their rooms.
	{"xcaddy", []string{"caddymodule"}},
	{"caddymodule", []string{"caddymodule/request", "caddymodule/serving", "caddymodule/secretstorage", "caddymodule/authn", "k8swatch/...", "internal/..."}},

	// A request, and what survives a reload.
	{"caddymodule/request", []string{
		"caddymodule/serving", "caddymodule/access", "caddymodule/authn", "caddymodule/identity", "caddymodule/upstream",
		"k8swatch/...", "internal/...",
	}},
	{"caddymodule/serving", []string{
		"caddymodule/trust", "caddymodule/access", "caddymodule/authn", "caddymodule/identity", "caddymodule/upstream",
		"probe", "k8swatch/...", "internal/...",
	}},
	{"caddymodule/trust", []string{"caddymodule/identity", "caddymodule/upstream", "probe", "k8swatch/...", "internal/..."}},

	// Users and their tokens.
	{"caddymodule/authn/internal/...", []string{"caddymodule/internal/..."}}, // for tests
	{"caddymodule/authn/...", []string{
		"caddymodule/authn/...", "caddymodule/exchange", "caddymodule/identity", "caddymodule/idp", "probe", "k8swatch/...", "internal/...",
	}},
	{"caddymodule/exchange", []string{"caddymodule/idp", "k8swatch", "k8swatch/api/v1", "internal/..."}},
	{"caddymodule/idp", []string{"internal/..."}},
	{"caddymodule/internal/...", nil}, // for tests

	// Rooms without another room behind them.
	{"caddymodule/access", []string{"internal/..."}},
	{"caddymodule/identity", nil},
	{"caddymodule/secretstorage", []string{"internal/..."}},
	{"caddymodule/upstream", []string{"caddymodule/identity", "k8swatch", "internal/..."}},
	{"probe", []string{"caddymodule/identity", "k8swatch", "k8swatch/api/v1", "internal/..."}},

	// Clusters: the value, what makes it, and where it comes from.
	{"k8swatch", []string{"k8swatch/api/v1", "k8swatch/internal/...", "internal/..."}},
	{"k8swatch/api/...", nil},
	{"k8swatch/safecel", []string{"internal/..."}},
	{"k8swatch/admission", []string{"k8swatch/api/v1", "k8swatch/safecel", "internal/..."}},
	{"k8swatch/internal/...", []string{"k8swatch", "k8swatch/api/v1", "internal/..."}},
	{"k8swatch/keypair", []string{"k8swatch", "k8swatch/internal/...", "internal/..."}},
	{"k8swatch/reference", []string{"k8swatch", "k8swatch/api/v1", "k8swatch/admission", "k8swatch/internal/...", "internal/..."}},
	{"k8swatch/compile", []string{
		"k8swatch", "k8swatch/api/v1", "k8swatch/admission", "k8swatch/safecel", "k8swatch/keypair", "k8swatch/reference",
		"k8swatch/internal/...", "internal/...",
	}},
	{"k8swatch/servingcert", []string{"k8swatch", "k8swatch/keypair", "internal/..."}},
	{"k8swatch/status", []string{"k8swatch", "k8swatch/api/v1", "k8swatch/internal/...", "internal/..."}},
	{"k8swatch/source/...", []string{
		"k8swatch", "k8swatch/api/v1", "k8swatch/admission", "k8swatch/reference", "k8swatch/internal/...", "internal/...",
	}},

	// What several rooms share.
	{"internal/...", []string{"internal/..."}},
}

func TestImportsPointOneWay(t *testing.T) {
	for _, s := range theTree(t).sources {
		for _, name := range s.imports() {
			imported, own := strings.CutPrefix(name, module)
			if !own || s.isTest() {
				continue
			}
			if !mayImport(s.dir(), imported) {
				t.Errorf("%s imports %s, which %s may not", s.path, imported, s.dir())
			}
		}
	}
}

func mayImport(dir, imported string) bool {
	for _, r := range rooms {
		if matches(dir, r.name) {
			return slices.ContainsFunc(r.may, func(pattern string) bool { return matches(imported, pattern) })
		}
	}
	return false
}

func TestEveryPackageHasARoom(t *testing.T) {
	used := map[string]bool{}
	for _, s := range theTree(t).sources {
		i := slices.IndexFunc(rooms, func(r room) bool { return matches(s.dir(), r.name) })
		if i < 0 {
			t.Errorf("%s has no row in rooms", s.dir())
			continue
		}
		used[rooms[i].name] = true
	}
	for _, r := range rooms {
		if !used[r.name] {
			t.Errorf("no package is %s", r.name)
		}
	}
}

func matches(dir, pattern string) bool {
	folder, tree := strings.CutSuffix(pattern, "/...")
	return dir == folder || tree && within(dir, folder)
}

func within(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }

// withoutCaddy are the files of caddymodule that need no Caddy, with the reason why
// they are there.
var withoutCaddy = map[string]string{
	"caddymodule/doc.go":     "the package comment",
	"caddymodule/options.go": "the table of the options that the app has as fields and the Caddyfile as lines",
}

// Caddy is imported by the Caddy modules, each of which is a file of
// caddymodule, and by nothing below them: so every room is tested without Caddy.
func TestCaddyIsImportedByItsModulesOnly(t *testing.T) {
	for _, s := range theTree(t).sources {
		uses := slices.ContainsFunc(s.imports(), func(name string) bool {
			return within(name, "github.com/caddyserver/caddy/v2")
		})
		switch {
		case uses && s.dir() != "caddymodule" && s.dir() != "xcaddy":
			t.Errorf("%s imports Caddy", s.path)
		case !uses && s.dir() == "caddymodule" && !s.isTest() && withoutCaddy[s.path] == "":
			t.Errorf("%s does not import Caddy: it belongs into a room", s.path)
		}
	}
}
