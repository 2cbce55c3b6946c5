package version

import (
	"cmp"
	"runtime/debug"
)

// modulePath is the path of the Go module of this product.
const modulePath = "github.com/proxyauthk8s/caddy-proxyauthk8s"

// stamped is set by the linker (`go build -ldflags "-X …"`) and by nothing else:
// the linker can set variables only.
var stamped string

// String returns the version, `devel` when it is not known.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return cmp.Or(stamped, built(info))
}

// built finds the version of this module in the build information: as the main
// module, which Go gives a version from the tags of its repository, or as a
// dependency of the program that xcaddy generates.
func built(info *debug.BuildInfo) string {
	const unknown = "devel"
	if info == nil {
		return unknown
	}
	for _, module := range append(info.Deps, &info.Main) {
		if module.Path != modulePath {
			continue
		}
		if module.Replace != nil {
			module = module.Replace
		}
		if module.Version != "" && module.Version != "(devel)" {
			return module.Version
		}
	}
	return unknown
}
