package caddymodule

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Values of audience_validation (AUTH-7).
const (
	audienceEnforce = "enforce"
	audienceWarn    = "warn"
	audienceOff     = "off"
)

// impersonationPolicy is what happens to Impersonate-* headers (ID-6).
type impersonationPolicy string

const (
	impersonationStrip   impersonationPolicy = "strip"
	impersonationDeny    impersonationPolicy = "deny"
	impersonationForward impersonationPolicy = "forward"
)

// runtimeOptions are the options that shape the runtime. Configurations with
// the same options share one; every field is in its key.
type runtimeOptions struct {
	Directory           string
	Kubernetes          *KubernetesSource
	Namespace           string
	AllowedModes        []v1.UpstreamMode
	AudienceValidation  string
	ReferenceNamespaces []string
	UpstreamClientTTL   time.Duration
	TokenCacheTTL       time.Duration
	ProbeInterval       time.Duration
}

func (o runtimeOptions) key() string {
	b, err := json.Marshal(o)
	if err != nil {
		// Strings and numbers always marshal.
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// options fills in defaults and the environment, and checks everything that
// can be checked without I/O.
func (a *App) options() (runtimeOptions, error) {
	if err := a.checkSource(); err != nil {
		return runtimeOptions{}, err
	}
	o := runtimeOptions{
		Directory:           a.Directory,
		Namespace:           a.ownNamespace(),
		ReferenceNamespaces: slices.Compact(slices.Sorted(slices.Values(a.ReferenceNamespaces))),
	}
	var errs []error
	for _, ns := range append([]string{o.Namespace}, o.ReferenceNamespaces...) {
		if problems := validation.IsDNS1123Label(ns); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("namespace %q: %s", ns, problems[0]))
		}
	}
	errs = append(errs, a.readKubernetes(&o), a.readAudience(&o), a.readModes(&o), a.readPolicies(), a.readDurations(&o), checkPublicURL(a.PublicURL))
	return o, errors.Join(errs...)
}

// checkSource demands exactly one source.
func (a *App) checkSource() error {
	switch {
	case a.Kubernetes != nil && a.Directory != "":
		return errors.New("proxyauth: kubernetes and directory exclude each other: set exactly one")
	case a.Kubernetes != nil:
		return nil
	case a.Directory == "":
		return errors.New("proxyauth: no source: set kubernetes or directory")
	}
	return checkDirectory(a.Directory)
}

const (
	// defaultLease is the Lease of the leader election.
	defaultLease = "proxyauthk8s"
	// electionOff has this process act as the leader.
	electionOff = "off"
)

// readKubernetes checks the source's options, and that a kubeconfig that is
// named can be used; whether there is a hub shows when it is asked.
func (a *App) readKubernetes(o *runtimeOptions) error {
	if a.Kubernetes == nil {
		return nil
	}
	k := &KubernetesSource{
		Kubeconfig:      a.Kubernetes.Kubeconfig,
		WatchNamespaces: slices.Compact(slices.Sorted(slices.Values(a.Kubernetes.WatchNamespaces))),
		LeaderElection:  cmp.Or(a.Kubernetes.LeaderElection, defaultLease),
	}
	o.Kubernetes = k
	var errs []error
	for _, ns := range k.WatchNamespaces {
		if problems := validation.IsDNS1123Label(ns); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("kubernetes watch_namespaces %q: %s", ns, problems[0]))
		}
	}
	if problems := validation.IsDNS1123Subdomain(k.LeaderElection); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("kubernetes leader_election %q: %s", k.LeaderElection, problems[0]))
	}
	if k.Kubeconfig != "" {
		_, err := k8swatch.LoadKubernetesConfig(k.Kubeconfig)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// inClusterNamespace is where a pod finds its own namespace.
const inClusterNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func (a *App) ownNamespace() string {
	own := cmp.Or(a.Namespace, os.Getenv("POD_NAMESPACE"))
	if own == "" {
		if b, err := os.ReadFile(inClusterNamespace); err == nil {
			own = strings.TrimSpace(string(b))
		}
	}
	return cmp.Or(own, "proxyauth")
}

func (a *App) readAudience(o *runtimeOptions) error {
	const env = "OIDC_AUDIENCE_VALIDATION"
	name, value := "audience_validation", a.AudienceValidation
	if fromEnv := os.Getenv(env); value == "" && fromEnv != "" {
		name, value = "environment variable "+env, fromEnv
	}
	o.AudienceValidation = cmp.Or(value, audienceEnforce)
	return oneOf(name, o.AudienceValidation, audienceEnforce, audienceWarn, audienceOff)
}

func (a *App) readModes(o *runtimeOptions) error {
	if len(a.AllowedModes) == 0 {
		o.AllowedModes = []v1.UpstreamMode{v1.ModePassthrough}
		return nil
	}
	for _, m := range a.AllowedModes {
		if err := oneOf("allowed_modes", m, string(v1.ModePassthrough), string(v1.ModeFrontProxy)); err != nil {
			return err
		}
		o.AllowedModes = append(o.AllowedModes, v1.UpstreamMode(m))
	}
	slices.Sort(o.AllowedModes)
	o.AllowedModes = slices.Compact(o.AllowedModes)
	if !slices.Contains(o.AllowedModes, v1.ModePassthrough) {
		return errors.New("allowed_modes must contain Passthrough")
	}
	return nil
}

// readPolicies reads what belongs to this configuration and not to the runtime.
func (a *App) readPolicies() error {
	a.impersonation = impersonationPolicy(cmp.Or(a.Impersonation, string(impersonationStrip)))
	cookies := cmp.Or(a.ProxyCookies, "off")
	a.keepCookies = cookies == "on"
	return errors.Join(
		oneOf("impersonation", string(a.impersonation),
			string(impersonationStrip), string(impersonationDeny), string(impersonationForward)),
		oneOf("proxy_cookies", cookies, "on", "off"))
}

func (a *App) readDurations(o *runtimeOptions) error {
	var errs []error
	for _, d := range []struct {
		into  *time.Duration
		value Duration
		name  string
		env   string
		def   time.Duration
	}{
		{&o.UpstreamClientTTL, a.UpstreamClientTTL, "upstream_client_ttl", "PROXY_UPSTREAM_CLIENT_TTL", 300 * time.Second},
		{&o.TokenCacheTTL, a.TokenCacheTTL, "token_cache_ttl", "OIDC_TOKEN_CACHE_TTL", 30 * time.Second},
		{&o.ProbeInterval, a.ProbeInterval, "probe_interval", "", 60 * time.Second},
	} {
		name, text := d.name, string(d.value)
		if d.env != "" && text == "" {
			name, text = "environment variable "+d.env, os.Getenv(d.env)
		}
		*d.into = d.def
		if text == "" {
			continue
		}
		value, err := parseDuration(text)
		if err == nil && d.name == "probe_interval" {
			err = checkProbeInterval(value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		*d.into = value
	}
	return errors.Join(errs...)
}

// minProbeInterval keeps a slip of the pen (`1ms`) from flooding the
// apiservers.
const minProbeInterval = time.Second

func checkProbeInterval(d time.Duration) error {
	if d < minProbeInterval {
		return fmt.Errorf("%s is shorter than %s", d, minProbeInterval)
	}
	return nil
}

func checkPublicURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(strings.NewReplacer("{namespace}", "namespace", "{name}", "name").Replace(s))
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("public_url must be an https:// URL without user, query and fragment")
	}
	return nil
}

func oneOf(option, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s: unknown value %q: must be one of %s", option, value, strings.Join(allowed, ", "))
}
