package proxy

import (
	"fmt"
	"strings"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
)

// Options shape one proxy. The zero value is an edge host: a directory of
// manifests, both modes allowed, the path form on https://127.0.0.1:<port>.
type Options struct {
	// Manifests are the files of the directory at the start: name to content.
	Manifests map[string]string
	// Hub is a kubeconfig: the objects come from there and not from the
	// directory.
	Hub string
	// LeaderElection is a Lease or off; empty is the product's default.
	LeaderElection string
	// DeniedTargets are those of a proxy with a Hub: nil is none, since the servers
	// of tests are on 127.0.0.1, and an empty list is the product's default.
	DeniedTargets []string
	// ObjectSelector is a label selector; empty is all objects of the hub.
	ObjectSelector string
	// AllowedModes default to Passthrough and FrontProxy.
	AllowedModes []string
	// Settings are further lines of the global option proxyauth, Global of the
	// global options block, Servers of its servers block, Site of the site's
	// block, Sites whole site blocks.
	Settings, Global, Servers, Site, Sites string
	// Directive replaces `proxyauth` in the site's block.
	Directive string
	// Hosts are further addresses of the site; https://127.0.0.1 and
	// https://localhost are always there. The certificate has them, too.
	Hosts []string
	// LogLevel is DEBUG by default: nothing may leak at any level.
	LogLevel string
	// GracePeriod and ShutdownDelay are Caddy's; 10 s and none by default.
	GracePeriod, ShutdownDelay time.Duration
	// AdminSocket listens on a unix socket instead of a port.
	AdminSocket bool
	// Caddyfile replaces the whole file. %{...} placeholders: see Expand.
	Caddyfile string
	// CA signs the proxy's certificate; nil makes one.
	CA *pki.CA
	// Env is added to the environment.
	Env []string
	// Namespace is the proxy's own; empty is the product's default, proxyauth.
	Namespace string
	// Namespaces are Linux namespaces to run in, those of a node for instance;
	// nil means those of this process.
	Namespaces *process.Namespaces
}

// ExampleAccessLog is a Site with the access log of the examples and its filter
// (SIG-3), in access.log of the proxy's folder.
const ExampleAccessLog = `log {
	output file %{dir}/access.log
	format filter {
		fields {
			request>headers>Sec-Websocket-Protocol delete
			request>headers>Cookie delete
			request>uri query {
				delete access_token
			}
		}
	}
}`

// Namespace is the proxy's own namespace when nothing else is said.
const Namespace = "proxyauth"

// caddyfile is the configuration of a proxy with these options, with the
// placeholders of Expand.
func (o *Options) caddyfile() string {
	if o.Caddyfile != "" {
		return o.Caddyfile
	}
	modes := o.AllowedModes
	if modes == nil {
		modes = []string{"Passthrough", "FrontProxy"}
	}
	level := o.LogLevel
	if level == "" {
		level = "DEBUG"
	}
	grace := o.GracePeriod
	if grace == 0 {
		grace = 10 * time.Second
	}
	directive := o.Directive
	if directive == "" {
		directive = "proxyauth"
	}
	var b strings.Builder
	line := func(indent int, format string, args ...any) {
		fmt.Fprintf(&b, "%s%s\n", strings.Repeat("\t", indent), fmt.Sprintf(format, args...))
	}
	block := func(indent int, text string) {
		for l := range strings.Lines(strings.Trim(text, "\n")) {
			line(indent, "%s", strings.TrimRight(l, "\n"))
		}
	}
	line(0, "{")
	line(1, "admin %%{admin}")
	line(1, "persist_config off")
	line(1, "auto_https disable_redirects")
	line(1, "grace_period %s", grace)
	if o.ShutdownDelay > 0 {
		line(1, "shutdown_delay %s", o.ShutdownDelay)
	}
	line(1, "log {")
	line(2, "output file %%{log} {")
	line(3, "roll_disabled")
	line(2, "}")
	line(2, "format json")
	line(2, "level %s", level)
	line(1, "}")
	line(1, "servers {")
	line(2, "protocols h1 h2")
	line(2, "max_header_size 64KiB")
	line(2, "timeouts {")
	line(3, "read_header 10s")
	line(3, "idle 5m")
	line(2, "}")
	block(2, o.Servers)
	line(1, "}")
	line(1, "proxyauth {")
	if o.Hub != "" {
		line(2, "kubernetes {")
		line(3, "kubeconfig %s", o.Hub)
		if o.LeaderElection != "" {
			line(3, "leader_election %s", o.LeaderElection)
		}
		if o.ObjectSelector != "" {
			line(3, "object_selector %q", o.ObjectSelector)
		}
		line(2, "}")
		if o.DeniedTargets == nil {
			line(2, "denied_targets none")
		} else if len(o.DeniedTargets) > 0 {
			line(2, "denied_targets %s", strings.Join(o.DeniedTargets, " "))
		}
	} else {
		line(2, "directory %%{directory}")
	}
	line(2, "allowed_modes %s", strings.Join(modes, " "))
	if o.Namespace != "" {
		line(2, "namespace %s", o.Namespace)
	}
	block(2, o.Settings)
	line(1, "}")
	block(1, o.Global)
	line(0, "}")
	addresses := []string{"https://127.0.0.1:%{port}", "https://localhost:%{port}"}
	for _, h := range o.Hosts {
		addresses = append(addresses, "https://"+h+":%{port}")
	}
	line(0, "%s {", strings.Join(addresses, ", "))
	line(1, "bind 127.0.0.1")
	line(1, "tls %%{cert} %%{key}")
	block(1, o.Site)
	line(1, "%s", directive)
	line(0, "}")
	line(0, "http://:%%{health} {")
	line(1, "bind 127.0.0.1")
	line(1, "proxyauth_health")
	line(0, "}")
	block(0, o.Sites)
	return b.String()
}
