package layout

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// rooms says which packages of the module each package may import. A name
// stands for itself and everything below it. The first entry that is the package
// or a folder around it counts, so that a folder comes after what is in it.
var rooms = []struct {
	room string
	may  []string
}{
	// The Caddy modules delegate to their rooms.
	{"caddymodule/access", []string{"internal"}},
	{"caddymodule/identity", nil},
	{"caddymodule/secretstorage", []string{"internal"}},
	{"caddymodule/idp", []string{"internal"}},
	{"caddymodule/exchange", []string{"caddymodule/idp", "k8swatch", "internal"}},
	{"caddymodule/authn/internal", []string{"caddymodule/internal"}}, // for tests
	{"caddymodule/authn", []string{"caddymodule/authn", "caddymodule/exchange", "caddymodule/identity", "caddymodule/idp", "k8swatch", "probe", "internal"}},
	{"caddymodule/upstream", []string{"caddymodule/identity", "k8swatch", "internal", "probe"}},
	{"caddymodule/internal", []string{"internal"}},
	{"caddymodule/request", []string{"caddymodule", "k8swatch", "probe", "internal"}},
	{"caddymodule/serving", []string{"caddymodule", "k8swatch", "probe", "internal"}},
	{"caddymodule/trust", []string{"caddymodule", "k8swatch", "probe", "internal"}},
	{"caddymodule", []string{"caddymodule", "k8swatch", "probe", "internal"}},
	{"probe", []string{"caddymodule/identity", "k8swatch", "internal"}},
	{"k8swatch/api", nil},
	{"k8swatch/safecel", []string{"internal"}},
	{"k8swatch/admission", []string{"k8swatch/api", "k8swatch/safecel", "internal"}},
	{"k8swatch", []string{"k8swatch", "internal"}},
	{"internal", []string{"internal"}},
	{"xcaddy", []string{"caddymodule"}},
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
		if within(dir, r.room) {
			return slices.ContainsFunc(r.may, func(allowed string) bool { return within(imported, allowed) })
		}
	}
	return false
}

func within(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }

// roomsAreOut says that request, serving and trust are rooms of their own.
const roomsAreOut = false

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
		case roomsAreOut && !uses && s.dir() == "caddymodule" && !s.isTest() && path.Base(s.path) != "doc.go":
			t.Errorf("%s does not import Caddy: it belongs into a room", s.path)
		}
	}
}
