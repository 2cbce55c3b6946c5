// Package realtools builds the real programs the tests run against:
// those of Kubernetes, etcd and helm, and the development tools staticcheck,
// xcaddy and controller-gen. What only Debian has, it installs (Debian).
//
// Each comes from a go.mod of its own below integration/tools, so its
// dependencies are pinned by that file and its go.sum and never mix with those
// of the product. A program is built once per version with the Go toolchain at
// hand and kept outside the repository, in $PROXYAUTH_CACHE, else
// $XDG_CACHE_HOME/proxyauthk8s, else $HOME/.cache/proxyauthk8s. The file name
// carries the version and a digest of everything that shapes the build, so a
// changed pin gives a new file and never a stale one.
//
// Older apiservers, an older kubectl, an aggregated API server and clients of others
// are built for the long tests alone (OnlyNamed). NodeModules installs packages of
// JavaScript, pinned by a package-lock.json with its checksums.
//
// Each program has a file lock of its own: the first process to come builds, the
// others wait and find the file. Programs that one go.mod pins are built by one
// go build, those of several go.mods at the same time when there are cores.
// KUBEBUILDER_ASSETS may name a folder with etcd, kube-apiserver and kubectl of
// the pinned minor versions, which are then not built. Sources come through the
// Go module proxy alone, and go.sum has their checksums.
package realtools
