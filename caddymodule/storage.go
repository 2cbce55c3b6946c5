package caddymodule

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/secretstorage"
	hubsource "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/hub"
)

func init() {
	caddy.RegisterModule(Storage{})
}

// Storage keeps Caddy's certificates, keys and ACME accounts in Secrets of a
// Kubernetes namespace, and locks with Leases there, so that all replicas
// share them (CONF-4).
//
// The proxy needs rights in that namespace: get, list, create, patch and delete
// of Secrets; get, create, update and delete of Leases.
type Storage struct {
	// The namespace of the Secrets and Leases, which should hold nothing else.
	// Default: the proxy's own, with `-caddy` appended.
	Namespace string `json:"namespace,omitempty"`

	// A kubeconfig file. Default: the in-cluster configuration, then KUBECONFIG.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	ctx     caddy.Context
	storage *secretstorage.Storage
}

// CaddyModule returns the Caddy module information.
func (Storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.storage.proxyauth",
		New: func() caddy.Module { return new(Storage) },
	}
}

// Provision does no network I/O: the client is made at the first use.
func (s *Storage) Provision(ctx caddy.Context) error {
	s.ctx = ctx
	s.storage = secretstorage.New(secretstorage.Options{Open: s.open, Logger: ctx.Logger()})
	return nil
}

// Validate checks the namespace, and that a kubeconfig that is given can be
// used. Whether an API answers is found out when it is first asked.
func (s *Storage) Validate() error {
	return errors.Join(fillOptions(s.table()), checkKubeconfig(s.Kubeconfig))
}

// CertMagicStorage returns the storage itself.
func (s *Storage) CertMagicStorage() (certmagic.Storage, error) { return s.storage, nil }

// open finds the API and the namespace at the first use. The app, which knows the
// proxy's own namespace, is provisioned after the storage.
func (s *Storage) open() (secretstorage.Target, error) {
	config, err := hubsource.LoadConfig(s.Kubeconfig)
	if err != nil {
		return secretstorage.Target{}, err
	}
	namespace := s.Namespace
	if namespace == "" {
		app, err := findApp(s.ctx)
		if err != nil {
			app = new(App) // `caddy storage` runs without apps
		}
		if err := namespaceOption(&app.Namespace, &namespace).fill(); err != nil {
			return secretstorage.Target{}, err
		}
		namespace += "-caddy"
	}
	return secretstorage.Target{Config: config, Namespace: namespace}, nil
}

// UnmarshalCaddyfile reads the global option:
//
//	storage proxyauth {
//	    namespace  <namespace>
//	    kubeconfig <path>
//	}
func (s *Storage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return unmarshalBlock(d, s.table())
}

// table lists the options of the storage.
func (s *Storage) table() []option {
	return []option{
		{name: "namespace", value: asText[string](&s.Namespace, nil), check: namespaces("namespace")},
		{name: "kubeconfig", value: asText[string](&s.Kubeconfig, nil)},
	}
}

// Interface guards.
var (
	_ caddy.Provisioner      = (*Storage)(nil)
	_ caddy.Validator        = (*Storage)(nil)
	_ caddy.StorageConverter = (*Storage)(nil)
	_ caddyfile.Unmarshaler  = (*Storage)(nil)
)
