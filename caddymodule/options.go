package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
	hubsource "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/hub"
)

var errTwoSources = errors.New("kubernetes and directory exclude each other: set exactly one")

// table lists the options of the global option proxyauth, in the order of their
// names. The values to use go to o, and to fields of the app where they belong
// to this configuration alone.
//
// A new option takes four edits: a field of App with its documentation, a row here,
// its use (by way of serving.Options where the clusters depend on it), and a line
// in Caddyfile.examples/options.Caddyfile. Tests hold these lists to each other;
// `go test ./caddymodule -run Reference -update` writes the rows of
// docs/reference.md.
func (a *App) table(o *serving.Options) []option {
	return []option{
		{
			name: "allowed_modes", value: asSet(&a.AllowedModes, &o.AllowedModes), check: checkModes,
			fallback: string(v1.ModePassthrough),
			values:   "`Passthrough`, which must be there, `FrontProxy`",
		},
		{
			name: "audience_validation", value: asText(&a.AudienceValidation, &o.AudienceValidation),
			check:    oneOf(authn.AudienceEnforce, authn.AudienceWarn, authn.AudienceOff),
			variable: "OIDC_AUDIENCE_VALIDATION", fallback: authn.AudienceEnforce,
			values: "`enforce`, `warn`, `off` (AUTH-7)",
		},
		{
			name: "denied_targets", value: asSet(&a.DeniedTargets, &o.DeniedTargets), check: checkTargets, fallback: a.deniedByDefault(),
			values:    "CIDRs, addresses, names, `*.` names, `loopback`, `link-local`, `unspecified`; or `none`: see [below](#denied-targets)",
			otherwise: "with `kubernetes`: `" + egress.Default + "`; with `directory`: `" + egress.None + "`",
		},
		{
			name: "directory", value: asText(&a.Directory, &o.Directory),
			values: "folder; exactly one of `kubernetes` and `directory` is set",
		},
		{
			name: "disable_validation", value: asSwitch("off", &a.DisableValidation, &o.RequireValidation), check: oneOf("on", "off"), fallback: "on",
			values: "`on`, `off`: whether objects may use that field (AUTH-3)",
		},
		{
			name: "impersonation", value: asText(&a.Impersonation, &a.impersonation),
			check:    oneOf(string(request.ImpersonationStrip), string(request.ImpersonationDeny), string(request.ImpersonationForward)),
			fallback: string(request.ImpersonationStrip),
			values:   "`strip`, `deny`, `forward` (ID-6)",
		},
		{
			name: "kubernetes", values: "the objects are in a Kubernetes API; the next four go into its block",
			block: &block{
				open: func() []option {
					a.Kubernetes = new(KubernetesSource)
					return a.kubernetesTable(o)
				},
				table: func() []option { return a.kubernetesTable(o) },
			},
		},
		namespaceOption(&a.Namespace, &o.Namespace),
		{name: "portal", planned: true},
		{
			// The minimum keeps a typing error (`1ms`) from flooding the apiservers.
			name: "probe_interval", value: asDuration(&a.ProbeInterval, &o.ProbeInterval, time.Second),
			fallback: "60s",
			values:   "duration, 1 s at least (TRUST-1)",
		},
		{
			name: "proxy_cookies", value: asSwitch("on", &a.ProxyCookies, &a.keepCookies), check: oneOf("on", "off"), fallback: "off",
			values: "`on`, `off` (ID-5)",
		},
		{name: "public_ca", value: asText[string](&a.PublicCA, nil), values: "file; without effect in this version"},
		{
			name: "public_url", value: asText[string](&a.PublicURL, nil), check: checkPublicURL,
			values: "https URL, or a template with `{namespace}` and `{name}`; without effect in this version",
		},
		{name: "redis", planned: true},
		{
			name: "reference_namespaces", value: asSet(&a.ReferenceNamespaces, &o.ReferenceNamespaces),
			check:  namespaces("namespace"),
			values: "namespaces that API-4 opens", otherwise: "none",
		},
		{
			name: "token_cache_ttl", value: asDuration(&a.TokenCacheTTL, &o.TokenCacheTTL, minTTL),
			variable: "OIDC_TOKEN_CACHE_TTL", fallback: "30s",
			values: "duration (AUTH-12)",
		},
		{
			name: "upstream_client_ttl", value: asDuration(&a.UpstreamClientTTL, &o.UpstreamClientTTL, minTTL),
			variable: "PROXY_UPSTREAM_CLIENT_TTL", fallback: "300s",
			values: "duration (CERT-8); over 45 s counts as 45 s, without effect with a directory",
		},
		{name: "vault", planned: true},
	}
}

// kubernetesTable lists the options of the block kubernetes, if there is one.
func (a *App) kubernetesTable(o *serving.Options) []option {
	if a.Kubernetes == nil {
		return nil
	}
	given, used := a.Kubernetes, new(serving.HubOptions)
	o.Kubernetes = used
	return []option{
		{
			name: "kubeconfig", value: asText(&given.Kubeconfig, &used.Kubeconfig),
			values: "file", otherwise: "the pod's ServiceAccount, else the files of `KUBECONFIG`",
		},
		{
			name: "watch_namespaces", value: asSet(&given.WatchNamespaces, &used.WatchNamespaces),
			check:  namespaces("kubernetes watch_namespaces"),
			values: "namespaces whose objects are served", otherwise: "all",
		},
		{
			name: "leader_election", value: asText(&given.LeaderElection, &used.LeaderElection),
			check:    kubernetesNames("kubernetes leader_election", validation.IsDNS1123Subdomain),
			fallback: "proxyauthk8s",
			values:   "name of the Lease; `off`: this process acts as the leader",
		},
		{
			name: "object_selector", value: asText(&given.ObjectSelector, &used.ObjectSelector), check: checkSelector,
			values: "label selector, in quotes: only objects with these labels are served (REC-8)", otherwise: "all",
		},
	}
}

// minTTL catches a number in JSON that was meant to be seconds: it counts
// nanoseconds.
const minTTL = time.Millisecond

// options fills in the environment and the defaults, and checks all that can be
// checked without asking another machine.
func (a *App) options() (serving.Options, error) {
	var o serving.Options
	switch {
	case a.Kubernetes != nil && a.Directory != "":
		return o, fmt.Errorf("proxyauth: %w", errTwoSources)
	case a.Kubernetes == nil && a.Directory == "":
		return o, errors.New("proxyauth: no source: set kubernetes or directory")
	}
	if err := fillOptions(a.table(&o)); err != nil {
		return o, err
	}
	if o.Kubernetes != nil {
		o.ClusterDomain = clusterDomain()
		return o, checkKubeconfig(o.Kubernetes.Kubeconfig)
	}
	return o, checkDirectory(o.Directory)
}

// checkDirectory reports what would make Start fail.
func checkDirectory(path string) error {
	if _, err := os.ReadDir(path); err != nil {
		return fmt.Errorf("reading the directory of clusters: %w", err)
	}
	return nil
}

// checkKubeconfig reads a kubeconfig that is given. Whether an API answers is
// found out when it is first asked.
func checkKubeconfig(path string) error {
	if path == "" {
		return nil
	}
	_, err := hubsource.LoadConfig(path)
	return err
}

// clusterDomain is the DNS domain of the cluster in which this process runs.
func clusterDomain() string {
	b, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return compile.DefaultClusterDomain // outside of a pod
	}
	return compile.ClusterDomain(string(b))
}

// namespaceOption is the option for the proxy's own namespace.
func namespaceOption(field, used *string) option {
	return option{
		name: "namespace", value: asText(field, used), check: namespaces("namespace"),
		variable: "POD_NAMESPACE", fallback: podNamespace(),
		values: "the proxy's own", otherwise: "the pod's, else `proxyauth`",
	}
}

// podNamespace returns the namespace of the pod in which this process runs, and
// outside of a pod `proxyauth`.
func podNamespace() string {
	b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return "proxyauth"
	}
	return cmp.Or(strings.TrimSpace(string(b)), "proxyauth")
}

// deniedByDefault is what denied_targets is when it is absent: tenants write the
// objects of a hub, and the admin of the host those of a directory.
func (a *App) deniedByDefault() string {
	if a.Kubernetes != nil {
		return egress.Default
	}
	return egress.None
}

func checkTargets(name string, targets []string) error {
	if _, err := egress.Parse(targets); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func checkModes(name string, modes []string) error {
	if err := oneOf(string(v1.ModePassthrough), string(v1.ModeFrontProxy))(name, modes); err != nil {
		return err
	}
	if !slices.Contains(modes, string(v1.ModePassthrough)) {
		return errors.New("allowed_modes must contain Passthrough")
	}
	return nil
}

func checkSelector(name string, values []string) error {
	for _, value := range values {
		if _, err := labels.Parse(value); err != nil {
			return fmt.Errorf("kubernetes %s: no label selector: %w", name, err)
		}
	}
	return nil
}

func checkPublicURL(name string, values []string) error {
	for _, value := range values {
		u, err := url.Parse(strings.NewReplacer("{namespace}", "namespace", "{name}", "name").Replace(value))
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("%s must be an https:// URL without user, query and fragment", name)
		}
	}
	return nil
}
