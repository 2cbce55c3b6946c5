package caddymodule

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Section 15: the defaults.
func TestOptionDefaults(t *testing.T) {
	clearEnv(t)
	app := &App{Directory: t.TempDir()}
	got, err := app.options()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ got, want any }{
		"namespace":            {got.Namespace, "proxyauth"},
		"allowed_modes":        {got.AllowedModes, []v1.UpstreamMode{v1.ModePassthrough}},
		"audience_validation":  {got.AudienceValidation, "enforce"},
		"impersonation":        {app.impersonation, request.ImpersonationStrip},
		"proxy_cookies":        {app.keepCookies, false},
		"denied_targets":       {got.DeniedTargets, []string{"none"}},
		"disable_validation":   {got.RequireValidation, false},
		"reference_namespaces": {got.ReferenceNamespaces, []string(nil)},
		"upstream_client_ttl":  {got.UpstreamClientTTL, 300 * time.Second},
		"token_cache_ttl":      {got.TokenCacheTTL, 30 * time.Second},
		"probe_interval":       {got.ProbeInterval, time.Minute},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	app = &App{Kubernetes: new(KubernetesSource)}
	got, err = app.options()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&serving.HubOptions{LeaderElection: "proxyauthk8s"}, got.Kubernetes); diff != "" {
		t.Errorf("kubernetes: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"link-local", "loopback", "unspecified"}, got.DeniedTargets); diff != "" {
		t.Errorf("denied_targets with kubernetes: -want +got:\n%s", diff)
	}
}

// Section 15: the option wins over the environment, and that over the default.
func TestOptions(t *testing.T) {
	clearEnv(t)
	dir := t.TempDir()
	defaults, err := (&App{Directory: dir}).options()
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*serving.Options)) serving.Options {
		o := defaults
		change(&o)
		return o
	}
	for name, tc := range map[string]struct {
		app  App
		env  map[string]string
		want serving.Options
	}{
		"defaults": {want: defaults},
		"environment": {
			env: map[string]string{
				"POD_NAMESPACE": "pods", "OIDC_AUDIENCE_VALIDATION": "warn",
				"PROXY_UPSTREAM_CLIENT_TTL": "60", "OIDC_TOKEN_CACHE_TTL": "10s",
			},
			want: with(func(o *serving.Options) {
				o.Namespace, o.AudienceValidation = "pods", "warn"
				o.UpstreamClientTTL, o.TokenCacheTTL = time.Minute, 10*time.Second
			}),
		},
		"the option wins over the environment": {
			app: App{Namespace: "own", AudienceValidation: "off", TokenCacheTTL: "1s"},
			env: map[string]string{"POD_NAMESPACE": "pods", "OIDC_AUDIENCE_VALIDATION": "warn", "OIDC_TOKEN_CACHE_TTL": "nonsense"},
			want: with(func(o *serving.Options) {
				o.Namespace, o.AudienceValidation, o.TokenCacheTTL = "own", "off", time.Second
			}),
		},
		"what authors may not do": {
			app: App{DeniedTargets: []string{"10.0.0.0/8", "loopback"}, DisableValidation: "off"},
			want: with(func(o *serving.Options) {
				o.DeniedTargets, o.RequireValidation = []string{"10.0.0.0/8", "loopback"}, true
			}),
		},
		"lists are sets": {
			app: App{AllowedModes: []string{"Passthrough", "FrontProxy", "Passthrough"}, ReferenceNamespaces: []string{"b", "a", "b"}},
			want: with(func(o *serving.Options) {
				o.AllowedModes = []v1.UpstreamMode{v1.ModeFrontProxy, v1.ModePassthrough}
				o.ReferenceNamespaces = []string{"a", "b"}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnv(t)
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			tc.app.Directory = dir
			got, err := tc.app.options()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.Key() == with(func(o *serving.Options) { o.Namespace = "another" }).Key() {
				t.Error("other options have the same key")
			}
		})
	}
}

func clearEnv(t *testing.T) {
	for _, o := range tables() {
		if o.variable != "" {
			t.Setenv(o.variable, "")
		}
	}
}

// A bad configuration fails with a reason that says what to change.
func TestBadOptions(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		app  App
		env  map[string]string
		want string
	}{
		"no source":             {app: App{}, want: "no source: set kubernetes or directory"},
		"two sources":           {app: App{Directory: dir, Kubernetes: &KubernetesSource{}}, want: "exclude each other"},
		"no such kubeconfig":    {app: App{Kubernetes: &KubernetesSource{Kubeconfig: dir + "/none"}}, want: "reading the kubeconfig"},
		"a namespace to watch":  {app: App{Kubernetes: &KubernetesSource{WatchNamespaces: []string{"Team"}}}, want: `kubernetes watch_namespaces "Team"`},
		"a selector":            {app: App{Kubernetes: &KubernetesSource{ObjectSelector: "a=b=c"}}, want: "kubernetes object_selector: no label selector"},
		"a lease":               {app: App{Kubernetes: &KubernetesSource{LeaderElection: "On"}}, want: `kubernetes leader_election "On"`},
		"no such directory":     {app: App{Directory: dir + "/none"}, want: "reading the directory of clusters"},
		"unknown mode":          {app: App{Directory: dir, AllowedModes: []string{"Passthrough", "frontproxy"}}, want: `allowed_modes: unknown value "frontproxy"`},
		"without Passthrough":   {app: App{Directory: dir, AllowedModes: []string{"FrontProxy"}}, want: "allowed_modes must contain Passthrough"},
		"audience_validation":   {app: App{Directory: dir, AudienceValidation: "on"}, want: "audience_validation: unknown value"},
		"audience in env":       {app: App{Directory: dir}, env: map[string]string{"OIDC_AUDIENCE_VALIDATION": "no"}, want: "environment variable OIDC_AUDIENCE_VALIDATION: unknown value"},
		"duration in env":       {app: App{Directory: dir}, env: map[string]string{"PROXY_UPSTREAM_CLIENT_TTL": "soon"}, want: "environment variable PROXY_UPSTREAM_CLIENT_TTL"},
		"duration":              {app: App{Directory: dir, UpstreamClientTTL: "soon"}, want: `upstream_client_ttl: "soon" is neither`},
		"no duration":           {app: App{Directory: dir, TokenCacheTTL: "0"}, want: `token_cache_ttl: "0" is not longer than zero`},
		"no duration in env":    {app: App{Directory: dir}, env: map[string]string{"OIDC_TOKEN_CACHE_TTL": "0"}, want: `environment variable OIDC_TOKEN_CACHE_TTL: "0" is not longer`},
		"a short interval":      {app: App{Directory: dir, ProbeInterval: "999ms"}, want: "probe_interval: 999ms is shorter than 1s"},
		"impersonation":         {app: App{Directory: dir, Impersonation: "allow"}, want: "impersonation: unknown value"},
		"denied_targets":        {app: App{Directory: dir, DeniedTargets: []string{"10.0.0.0/33"}}, want: `denied_targets: "10.0.0.0/33" is not a CIDR`},
		"none and more":         {app: App{Directory: dir, DeniedTargets: []string{"none", "10.0.0.0/8"}}, want: "denied_targets: none stands alone"},
		"disable_validation":    {app: App{Directory: dir, DisableValidation: "true"}, want: "disable_validation: unknown value"},
		"proxy_cookies":         {app: App{Directory: dir, ProxyCookies: "true"}, want: "proxy_cookies: unknown value"},
		"namespace":             {app: App{Directory: dir, Namespace: "Proxy"}, want: `namespace "Proxy"`},
		"reference namespace":   {app: App{Directory: dir, ReferenceNamespaces: []string{"a/b"}}, want: `namespace "a/b"`},
		"public_url":            {app: App{Directory: dir, PublicURL: "https://user@k8s.example.com"}, want: "public_url must be"},
		"public_url with query": {app: App{Directory: dir, PublicURL: "https://k8s.example.com?x"}, want: "public_url must be"},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnv(t)
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			if _, err := tc.app.options(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
