package caddymodule

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/uuid"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
)

// elections holds the process's part in each election, one for each Lease: two
// runtimes that overlap in a reload share it, and the reload loses no lease.
var elections = caddy.NewUsagePool()

// election is this process's part in the election of the leader.
type election struct {
	*status.Elector
	key    string
	logger *zap.Logger

	start  sync.Once
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu sync.Mutex
	// followers are told when this process begins or ceases to lead.
	followers map[*runtime]struct{}
}

// joinElection takes a reference on the election of a Lease. It does no I/O.
func joinElection(config *rest.Config, o runtimeOptions, logger *zap.Logger) (*election, error) {
	id, err := json.Marshal([]string{o.Kubernetes.Kubeconfig, o.Namespace, o.Kubernetes.LeaderElection})
	if err != nil {
		return nil, err
	}
	value, _, err := elections.LoadOrNew(string(id), func() (caddy.Destructor, error) {
		identity, err := electionIdentity()
		if err != nil {
			return nil, err
		}
		elector, err := status.NewElector(status.ElectorOptions{
			Config: config, Namespace: o.Namespace, Lease: o.Kubernetes.LeaderElection, Identity: identity, Logger: logger,
		})
		if err != nil {
			return nil, err
		}
		return &election{Elector: elector, key: string(id), logger: logger, followers: make(map[*runtime]struct{})}, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*election), nil
}

// electionIdentity names this process: the pod, for who reads the Lease, and
// what tells it from the one before it in the same pod.
func electionIdentity() (string, error) {
	name := os.Getenv("POD_NAME")
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("naming this process in the leader election: %w", err)
		}
	}
	return name + "_" + uuid.NewString(), nil
}

// follow has a runtime told of changes, and starts the candidacy.
func (e *election) follow(rt *runtime) {
	e.mu.Lock()
	e.followers[rt] = struct{}{}
	e.mu.Unlock()
	e.start.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		e.cancel = cancel
		e.ended.Go(func() {
			if err := e.Run(ctx, e.changed); err != nil {
				e.logger.Error("taking part in the leader election", zap.Error(err))
			}
		})
	})
}

func (e *election) changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for rt := range e.followers {
		rt.lead()
	}
}

// leave ends what follow began, and gives the reference back.
func (e *election) leave(rt *runtime) error {
	e.mu.Lock()
	delete(e.followers, rt)
	e.mu.Unlock()
	_, err := elections.Delete(e.key)
	return err
}

// Destruct gives the Lease back, so that another replica need not wait for its
// end.
func (e *election) Destruct() error {
	if e.cancel != nil {
		e.cancel()
		e.ended.Wait()
	}
	return nil
}

// Interface guard.
var _ caddy.Destructor = (*election)(nil)
