package status

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Two programs that both keep the status of one object right would write it for
// ever. So the status of another installation is left alone while that installation
// is seen to write it, and a status that any other program overwrites is put right
// ever more rarely (REC-8).
const (
	// leftAlone is how long the status of another installation stands.
	leftAlone = 15 * time.Minute
	// clocksDiffer is how far the clock of the hub may be ahead. A later time was
	// set by somebody who may write the object, and is no reason to wait.
	clocksDiffer = 5 * time.Minute
	// A status that others overwrite is put right overwritesAtOnce times, and once
	// more each overwriteEvery.
	overwritesAtOnce = 20
	overwriteEvery   = time.Minute

	// eventObservedByAnother is the reason of the Event that tells of it.
	eventObservedByAnother = "ObservedByAnother"
)

// observer returns the installation that wrote the status of an object, and how
// long to leave that status alone; zero when it is this one's to write.
func observer(object *v1.ProxyKubeApi, own string, now time.Time) (another string, wait time.Duration) {
	if object.Status == nil || object.Status.ObservedBy == "" || object.Status.ObservedBy == own {
		return "", 0
	}
	_, at := lastWriter(object)
	if at.Sub(now) > clocksDiffer {
		return object.Status.ObservedBy, 0
	}
	return object.Status.ObservedBy, at.Add(leftAlone).Sub(now)
}

// lastWriter is who wrote the status last, as the hub noted it, and when. The name
// is of the writer's choice.
func lastWriter(object *v1.ProxyKubeApi) (manager string, at time.Time) {
	for _, entry := range object.ManagedFields {
		if entry.Subresource == "status" && entry.Time != nil && entry.Time.After(at) {
			manager, at = entry.Manager, entry.Time.Time
		}
	}
	return manager, at
}

// leave tells, once, that a status is left to another installation.
func (r *Reconciler) leave(ctx context.Context, key k8swatch.Key, object *v1.ProxyKubeApi, another, own string) {
	r.tell(ctx, key, object, fmt.Sprintf("the installation %s writes the status of this object: %s leaves it alone. "+
		"Let one installation serve an object: tell them apart with watch_namespaces or object_selector",
		text.Quote(another, k8swatch.MaxQuoted), text.Quote(own, k8swatch.MaxQuoted)))
}

// mayOverwrite is how long to wait before a status that another program overwrote
// is put right; zero for now.
func (r *Reconciler) mayOverwrite(ctx context.Context, key k8swatch.Key, object *v1.ProxyKubeApi, last *written) time.Duration {
	if last.overwrites == nil {
		last.overwrites = rate.NewLimiter(rate.Every(overwriteEvery), overwritesAtOnce)
	}
	reserved := last.overwrites.Reserve()
	wait := reserved.Delay()
	if wait > 0 {
		reserved.Cancel()
		manager, _ := lastWriter(object)
		r.tell(ctx, key, object, fmt.Sprintf("another program (%s) overwrites the status of this object: it is put right once in %v",
			text.Quote(manager, k8swatch.MaxQuoted), overwriteEvery))
	}
	return wait
}

// tell writes a log line and an Event, unless they were the last about the object.
func (r *Reconciler) tell(ctx context.Context, key k8swatch.Key, object *v1.ProxyKubeApi, message string) {
	if last := r.lastWrite(key); last.told == message {
		return
	}
	r.update(key, func(w *written) { w.told = message })
	r.logger.Warn("another program writes the status of a cluster", zap.Stringer("cluster", key), zap.String("reason", message))
	r.events.send(ctx, object, conditionEvent{warning: true, reason: eventObservedByAnother, message: message})
}

// unseen reports whether a version of the object is older than the write.
func (w *written) unseen(version string) bool {
	if w.status == nil {
		return false
	}
	if w.over == version {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, w.made)
	return err == nil && order < 0
}

// overwritten reports whether another program replaced what was written.
func (w *written) overwritten(object *v1.ProxyKubeApi) bool {
	return w.status != nil && !w.unseen(object.ResourceVersion) && !Same(w.kept, object.Status)
}
