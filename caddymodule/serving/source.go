package serving

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/directory"
	hubsource "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/hub"
)

// newSource makes the source that the options name. It does no I/O but to read
// how the hub is reached.
func newSource(o Options, logger *zap.Logger) (k8swatch.Source, *hub, error) {
	if o.Kubernetes == nil {
		source, err := directory.New(o.Directory, logger)
		return source, nil, err
	}
	config, err := hubsource.LoadConfig(o.Kubernetes.Kubeconfig)
	if err != nil {
		// Not an error yet: a configuration can be checked elsewhere than
		// where it is to run.
		return absentHub{new(directory.Source), err}, nil, nil
	}
	source, err := hubsource.New(hubsource.Options{
		Config:              config,
		Namespace:           o.Namespace,
		WatchNamespaces:     o.Kubernetes.WatchNamespaces,
		ObjectSelector:      o.Kubernetes.ObjectSelector,
		ReferenceNamespaces: o.ReferenceNamespaces,
		ReferenceTTL:        o.UpstreamClientTTL,
		Logger:              logger,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("preparing the Kubernetes source: %w", err)
	}
	return source, &hub{config: config, objects: source}, nil
}

// absentHub is the source of a process that has not been told where its hub is:
// it has nothing, and cannot start.
type absentHub struct {
	k8swatch.Store
	err error
}

// Run fails.
func (a absentHub) Run(context.Context, func(...k8swatch.Change)) error { return a.err }
