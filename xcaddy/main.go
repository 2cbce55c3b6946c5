// Command caddy is the ProxyAuthK8S distribution of Caddy: the standard
// modules and those of this project.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	// The standard modules of Caddy.
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule"
)

func main() {
	caddycmd.Main()
}
