package caddymodule

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

// statusBook remembers the last status of each cluster, so that the times in
// it move only when something changes.
type statusBook struct {
	mu   sync.Mutex
	last map[k8swatch.Key]*v1.ProxyKubeApiStatus
}

func newStatusBook() *statusBook {
	return &statusBook{last: make(map[k8swatch.Key]*v1.ProxyKubeApiStatus)}
}

func (b *statusBook) update(c *cluster, now time.Time) *v1.ProxyKubeApiStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	status := c.status(b.last[c.spec.Key], now)
	b.last[c.spec.Key] = status
	return status
}

// status is what the cluster's status must be, given the one it has.
func (c *cluster) status(previous *v1.ProxyKubeApiStatus, now time.Time) *v1.ProxyKubeApiStatus {
	return status.Build(status.Input{
		Cluster:   c.spec,
		Trust:     c.trust(),
		Notices:   append(c.issuerNotices(), c.certNotices()...),
		Reachable: c.reachable(),
		Previous:  previous,
		Now:       now,
	})
}

func (b *statusBook) forget(key k8swatch.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, key)
}

// statusNow is the status of a cluster as this replica sees it.
func (rt *runtime) statusNow(c *cluster, now time.Time) *v1.ProxyKubeApiStatus {
	if rt.hub == nil {
		return rt.statusOf.update(c, now)
	}
	var previous *v1.ProxyKubeApiStatus
	if object := rt.Latest(c.spec.Key); object != nil && object.UID == c.spec.UID {
		previous = object.Status
	}
	return c.status(previous, now)
}

// issuerNotices is IssuerUnavailable, with all issuers in one (AUTH-13).
func (c *cluster) issuerNotices() []k8swatch.Condition {
	faulty, ok := c.auth.(interface{ IssuerFaults() []string })
	if !ok {
		return nil
	}
	faults := faulty.IssuerFaults()
	if len(faults) == 0 {
		return nil
	}
	return []k8swatch.Condition{{
		Type:    k8swatch.NoticeIssuerUnavailable,
		Status:  k8swatch.StatusTrue,
		Reason:  k8swatch.NoticeIssuerUnavailable,
		Message: strings.Join(faults, "; "),
	}}
}

// statuses lists the clusters by namespace and name, and says whether the
// first full list has been read.
func (rt *runtime) statuses() ([]clusterStatus, bool) {
	snap := rt.load()
	if snap == nil {
		return nil, false
	}
	now := time.Now()
	list := make([]clusterStatus, 0, len(snap.clusters))
	for key, c := range snap.clusters {
		list = append(list, clusterStatus{Namespace: key.Namespace, Name: key.Name, Status: *rt.statusNow(c, now)})
	}
	slices.SortFunc(list, func(a, b clusterStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list, true
}

// logReady tells of a cluster that stops or begins to serve: a directory has no
// Events.
func (rt *runtime) logReady(before, after *cluster) {
	is := after.spec.Ready
	if before == nil && is.Status == k8swatch.StatusTrue || before != nil && before.spec.Ready.Reason == is.Reason {
		return
	}
	level := zapcore.InfoLevel
	if is.Status != k8swatch.StatusTrue && is.Reason != k8swatch.ReasonDisabled {
		level = zapcore.WarnLevel
	}
	rt.logger.Log(level, "readiness of a cluster", zap.Stringer("cluster", after.spec.Key),
		zap.String("ready", is.Status), zap.String("reason", is.Reason), zap.String("message", is.Message))
}
