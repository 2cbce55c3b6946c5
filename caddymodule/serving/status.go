package serving

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
)

// lastStatuses remembers the last status of each cluster, so that the times in
// it move only when something changes. A hub keeps them in the objects.
type lastStatuses struct {
	mu   sync.Mutex
	last map[k8swatch.Key]*v1.ProxyKubeApiStatus
}

func newLastStatuses() *lastStatuses {
	return &lastStatuses{last: make(map[k8swatch.Key]*v1.ProxyKubeApiStatus)}
}

func (l *lastStatuses) update(c *Cluster, now time.Time) *v1.ProxyKubeApiStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	status := c.status("", true, l.last[c.Spec.Key], now)
	l.last[c.Spec.Key] = status
	return status
}

// status is what the cluster's status must be, given the one it has. The
// installation is empty with a directory. A replica that does not lead asks an
// apiserver when the first request comes, and does not say before what it will find.
func (c *Cluster) status(installation string, leads bool, previous *v1.ProxyKubeApiStatus, now time.Time) *v1.ProxyKubeApiStatus {
	trust := c.Trust.State()
	if !leads && !c.Trust.Doubted() {
		trust.Unproven = ""
	}
	return status.Build(status.Input{
		Cluster:    c.Spec,
		Trust:      trust,
		Notices:    append(c.Auth.notices(), c.Trust.Notices()...),
		Reachable:  c.Trust.Reachable(),
		ObservedBy: installation,
		Previous:   previous,
		Now:        now,
	})
}

// ready is Ready of a cluster as this replica sees it.
func (c *Cluster) ready() k8swatch.Condition { return status.EffectiveReady(c.Spec, c.Trust.State()) }

func (l *lastStatuses) forget(key k8swatch.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, key)
}

// statusNow is the status of a cluster as this replica sees it.
func (rt *Runtime) statusNow(c *Cluster, now time.Time) *v1.ProxyKubeApiStatus {
	if rt.hub == nil {
		return withRefusedFiles(rt.statuses.update(c, now), rt.RefusedFiles())
	}
	var previous *v1.ProxyKubeApiStatus
	if object := rt.Latest(c.Spec.Key); object != nil && object.UID == c.Spec.UID {
		previous = object.Status
	}
	return c.status(rt.options.installation(), rt.Leading(), previous, now)
}

// ClusterStatus is the status of one cluster (SIG-4).
type ClusterStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ProxyGroup is the group that a caller must have (ACC-1), empty for none.
	ProxyGroup string                `json:"proxy_group,omitempty"`
	Status     v1.ProxyKubeApiStatus `json:"status"`
}

// Statuses lists the clusters by namespace and name, and says whether the
// first full list has been read.
func (rt *Runtime) Statuses() ([]ClusterStatus, bool) {
	snapshot := rt.Snapshot()
	if snapshot == nil {
		return nil, false
	}
	now := time.Now()
	list := make([]ClusterStatus, 0, len(snapshot.Clusters))
	for key, c := range snapshot.Clusters {
		list = append(list, ClusterStatus{Namespace: key.Namespace, Name: key.Name, ProxyGroup: c.Spec.RequiredGroup, Status: *rt.statusNow(c, now)})
	}
	slices.SortFunc(list, func(a, b ClusterStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list, true
}

// logReady tells of a cluster that stops or begins to serve: a directory has no
// Events.
func (rt *Runtime) logReady(before, after *Cluster) {
	is := after.Spec.Ready
	if before == nil && is.Status == k8swatch.StatusTrue || before != nil && before.Spec.Ready.Reason == is.Reason {
		return
	}
	level := zapcore.InfoLevel
	if is.Status != k8swatch.StatusTrue && is.Reason != k8swatch.ReasonDisabled {
		level = zapcore.WarnLevel
	}
	rt.logger.Log(level, "readiness of a cluster", zap.Stringer("cluster", after.Spec.Key),
		zap.String("ready", is.Status), zap.String("reason", is.Reason), zap.String("message", is.Message))
}
