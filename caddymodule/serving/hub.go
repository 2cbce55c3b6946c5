package serving

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	hubsource "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
)

// hub is what a runtime has of a Kubernetes API beside the objects.
type hub struct {
	config  *rest.Config
	objects *hubsource.Source
	// election is nil where this process always leads.
	election *election
	status   *status.Reconciler
}

// settleTime is how long a status waits for the first answers of an apiserver
// that was not asked yet: it is then written once, and a new leader does not
// take back what the one before it knew. A probe takes 10 s at most.
const settleTime = 12 * time.Second

// leaderlessAfter is how long no replica is seen to lead before each one probes
// for itself.
const leaderlessAfter = 30 * time.Second

// joinHub makes what writes to the hub. It does no I/O.
func (rt *Runtime) joinHub() error {
	if rt.hub == nil {
		return nil
	}
	status, err := status.NewReconciler(rt.hub.config, rt, rt.logger)
	if err != nil {
		return err
	}
	rt.hub.status = status
	if rt.options.Kubernetes.LeaderElection == ElectionOff {
		return nil
	}
	if rt.hub.election, err = rt.process.joinElection(rt.hub.config, rt.options); err != nil {
		return fmt.Errorf("preparing the leader election: %w", err)
	}
	return nil
}

// followHub starts what joinHub made.
func (rt *Runtime) followHub(ctx context.Context) {
	if rt.hub == nil {
		return
	}
	rt.done.Go(func() { rt.hub.status.Run(ctx) })
	if rt.hub.election != nil {
		rt.hub.election.follow(rt)
		rt.done.Go(func() { rt.watchForLeader(ctx) })
	}
}

// watchForLeader notices when no replica leads, and when one does again.
func (rt *Runtime) watchForLeader(ctx context.Context) {
	ticker := time.NewTicker(leaderlessAfter / 6)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			rt.updateLeadership()
		}
	}
}

// leaveHub ends this runtime's part in the election.
func (rt *Runtime) leaveHub() {
	if rt.hub != nil && rt.hub.election != nil {
		rt.process.leaveElection(rt.hub.election, rt)
	}
}

// statusChanged has the status of an object written again, and tells of it.
func (rt *Runtime) statusChanged(key k8swatch.Key) {
	rt.process.Events.look(key)
	if rt.hub != nil && rt.hub.status != nil {
		rt.hub.status.Enqueue(key)
	}
}

// updateLeadership tells everything that only the leader does whether this
// runtime leads now (REC-1): of the replicas the elected one leads, and within a
// process the runtime that serves requests.
func (rt *Runtime) updateLeadership() {
	rt.leadMu.Lock()
	defer rt.leadMu.Unlock()
	leads := rt.Leading()
	if !leads {
		if rt.leadsSince.Swap(nil) != nil {
			rt.process.Events.look()
		}
	} else if now := time.Now(); rt.leadsSince.CompareAndSwap(nil, &now) {
		rt.process.Events.look()
		if rt.hub != nil {
			rt.hub.status.EnqueueAll()
		}
	}
	rt.prober.Lead(leads || rt.leaderless())
}

// leaderless reports whether no replica is seen to lead: the hub is away, or
// refuses every renewal of the Lease. Each replica then probes for itself: an
// apiserver whose flags change meanwhile must be noticed all the same.
func (rt *Runtime) leaderless() bool {
	return rt.inForce.Load() && rt.hub != nil && rt.hub.election != nil && time.Since(rt.hub.election.Renewed()) > leaderlessAfter
}

// Leading says whether this runtime writes status and probes on schedule.
func (rt *Runtime) Leading() bool {
	return rt.inForce.Load() && (rt.hub == nil || rt.hub.election == nil || rt.hub.election.Leading())
}

// Keys lists the objects.
func (rt *Runtime) Keys() []k8swatch.Key { return rt.source.Keys() }

// Latest is an object as the hub has it.
func (rt *Runtime) Latest(key k8swatch.Key) *v1.ProxyKubeApi { return rt.hub.objects.Latest(key) }

// Status is what the status of an object must be.
func (rt *Runtime) Status(object *v1.ProxyKubeApi) (*v1.ProxyKubeApiStatus, time.Duration) {
	c := rt.clusters()[k8swatch.Key{Namespace: object.Namespace, Name: object.Name}]
	if c == nil || c.Spec.UID != object.UID {
		return nil, 0 // it is about to be compiled, and named again
	}
	now := time.Now()
	since := c.assembled
	if leads := rt.leadsSince.Load(); leads != nil && leads.After(since) {
		since = *leads
	}
	if wait := since.Add(settleTime).Sub(now); wait > 0 && c.Trust.Unsettled() {
		return nil, wait
	}
	return c.status(rt.options.installation(), true, object.Status, now), 0
}

// readStatuses has clusters read what their statuses say of the apiserver: what
// the leader found out, for replicas that do not probe on schedule (TRUST-4).
func (rt *Runtime) readStatuses(touched map[k8swatch.Key]struct{}) {
	if rt.hub == nil {
		return
	}
	leads := rt.Leading()
	for key := range touched {
		if c, object := rt.clusters()[key], rt.Latest(key); c != nil && object != nil && !leads {
			c.Trust.ReadStatus(object.Status, rt.options.installation())
		}
		rt.hub.status.Enqueue(key)
	}
}
