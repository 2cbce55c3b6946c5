package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// eventSource is who Events are from.
	eventSource = "proxyauthk8s"
	// An object may have eventBurst Events at once, and one more each
	// eventEvery: an author can provoke them.
	eventBurst = 50
	eventEvery = 10 * time.Second
	// maxEventMessage bounds an Event's message, in bytes (validation of
	// Events in kube-apiserver).
	maxEventMessage = 1024
)

// eventWriter writes an Event for each condition that changed. Repeated Events
// become one Event with a count, as in other controllers.
type eventWriter struct {
	client     typedcorev1.EventsGetter
	correlator *eventrecord.EventCorrelator
	logger     *zap.Logger
}

func newEventWriter(config *rest.Config, logger *zap.Logger) (*eventWriter, error) {
	c := rest.CopyConfig(config)
	c.QPS = -1 // the statuses that cause them are limited
	client, err := typedcorev1.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	return &eventWriter{
		client: client,
		correlator: eventrecord.NewEventCorrelatorWithOptions(eventrecord.CorrelatorOptions{
			BurstSize: eventBurst,
			QPS:       float32(time.Second) / float32(eventEvery),
			Clock:     clock.RealClock{},
		}),
		logger: logger,
	}, nil
}

// changes writes an Event for each condition whose status or reason is another
// than before, or that is gone (REC-4). One that cannot be written is logged:
// the status itself says the same.
func (w *eventWriter) changes(ctx context.Context, object *v1.ProxyKubeApi, status *v1.ProxyKubeApiStatus) {
	for _, event := range conditionEvents(conditionsOf(object.Status), status.Conditions) {
		w.send(ctx, object, event)
	}
}

// send writes one Event.
func (w *eventWriter) send(ctx context.Context, object *v1.ProxyKubeApi, event conditionEvent) {
	if err := w.write(ctx, object, event); err != nil {
		w.logger.Warn("writing an event", zap.String("cluster", object.Namespace+"/"+object.Name), zap.String("reason", event.reason), zap.Error(err))
	}
}

func conditionsOf(status *v1.ProxyKubeApiStatus) []metav1.Condition {
	if status == nil {
		return nil
	}
	return status.Conditions
}

// conditionEvent is what changed of a condition.
type conditionEvent struct {
	warning         bool
	reason, message string
}

func conditionEvents(before, after []metav1.Condition) []conditionEvent {
	var events []conditionEvent
	for _, c := range after {
		if old := findCondition(before, c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason {
			continue
		}
		message := fmt.Sprintf("%s is %s", c.Type, c.Status)
		if c.Message != "" {
			message += ": " + c.Message
		}
		events = append(events, conditionEvent{warning: warns(c), reason: c.Reason, message: message})
	}
	for _, c := range before {
		if findCondition(after, c.Type) == nil {
			events = append(events, conditionEvent{reason: c.Reason + "Cleared", message: c.Type + " no longer applies"})
		}
	}
	return events
}

// warns reports whether a condition is a problem. A notice is one while it is
// True, Ready and Reachable are one while they are not.
func warns(c metav1.Condition) bool {
	if c.Type == k8swatch.ConditionReady || c.Type == k8swatch.ConditionReachable {
		return c.Status != metav1.ConditionTrue && c.Reason != k8swatch.ReasonDisabled
	}
	return c.Status == metav1.ConditionTrue
}

func findCondition(all []metav1.Condition, kind string) *metav1.Condition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

func (w *eventWriter) write(ctx context.Context, object *v1.ProxyKubeApi, e conditionEvent) error {
	result, err := w.correlator.EventCorrelate(newEvent(object, e))
	if err != nil {
		return fmt.Errorf("counting events: %w", err)
	}
	if result.Skip {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	events := w.client.Events(object.Namespace)
	var written *corev1.Event
	if result.Event.Count > 1 {
		written, err = events.Patch(ctx, result.Event.Name, types.StrategicMergePatchType, result.Patch, metav1.PatchOptions{})
	}
	if result.Event.Count <= 1 || err != nil {
		// An Event that expired is made anew.
		result.Event.ResourceVersion = ""
		result.Event.Name = eventName(object.Name)
		written, err = events.Create(ctx, result.Event, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	w.correlator.UpdateState(written)
	return nil
}

func newEvent(object *v1.ProxyKubeApi, e conditionEvent) *corev1.Event {
	kind := corev1.EventTypeNormal
	if e.warning {
		kind = corev1.EventTypeWarning
	}
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: eventName(object.Name)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion:      v1.SchemeGroupVersion.String(),
			Kind:            v1.Kind,
			Namespace:       object.Namespace,
			Name:            object.Name,
			UID:             object.UID,
			ResourceVersion: object.ResourceVersion,
		},
		Type:                kind,
		Reason:              e.reason,
		Message:             text.OneLine(e.message, maxEventMessage),
		Source:              corev1.EventSource{Component: eventSource},
		ReportingController: "proxyauth.weebo.si.rs/" + eventSource,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
}

// eventName is that of client-go's recorder: the object's, and a moment.
func eventName(object string) string {
	suffix := fmt.Sprintf(".%x", time.Now().UnixNano())
	if room := 253 - len(suffix); len(object) > room {
		object = strings.TrimRight(object[:room], "-.")
	}
	return object + suffix
}
