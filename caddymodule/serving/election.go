package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/google/uuid"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
)

// election is this process's part in the election of the leader, one for each
// Lease: two runtimes that overlap in a reload share it, and the reload loses no
// lease.
type election struct {
	*status.Elector
	key    string
	logger *zap.Logger

	start  sync.Once
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu sync.Mutex
	// followers are told when this process begins or ceases to lead.
	followers map[*Runtime]struct{}
}

// joinElection takes a reference on the election of a Lease. It does no I/O.
func (p *Process) joinElection(config *rest.Config, o Options) (*election, error) {
	id, err := json.Marshal([]string{o.Kubernetes.Kubeconfig, o.Namespace, o.Kubernetes.LeaderElection})
	if err != nil {
		return nil, err
	}
	return p.elections.acquire(string(id), func() (*election, error) {
		identity, err := electionIdentity()
		if err != nil {
			return nil, err
		}
		elector, err := status.NewElector(status.ElectorOptions{
			Config: config, Namespace: o.Namespace, Lease: o.Kubernetes.LeaderElection, Identity: identity, Logger: p.logger,
		})
		if err != nil {
			return nil, err
		}
		return &election{Elector: elector, key: string(id), logger: p.logger, followers: make(map[*Runtime]struct{})}, nil
	})
}

// electionIdentity names this process: by its pod, for the reader of the Lease,
// and by a random part that differs from the process before in the same pod.
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
func (e *election) follow(rt *Runtime) {
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
		rt.updateLeadership()
	}
}

// leaveElection ends what follow began. It gives the Lease back when no runtime takes
// part any more, so that another replica need not wait for its end.
func (p *Process) leaveElection(e *election, rt *Runtime) {
	e.mu.Lock()
	delete(e.followers, rt)
	e.mu.Unlock()
	if p.elections.release(e.key) && e.cancel != nil {
		e.cancel()
		e.ended.Wait()
	}
}
