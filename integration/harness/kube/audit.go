package kube

import (
	"context"
	"fmt"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// AuditEvents is every event so far, oldest first. A watch or an upgrade has
// two: ResponseStarted and, at its end, ResponseComplete.
func (a *APIServer) AuditEvents() ([]auditv1.Event, error) { return a.audit.All() }

// WaitAudit returns the events that match, as soon as there is one. The event
// of a request is written just after its answer, so looking once is a race.
func (a *APIServer) WaitAudit(ctx context.Context, match func(*auditv1.Event) bool) ([]auditv1.Event, error) {
	for {
		all, err := a.AuditEvents()
		if err != nil {
			return nil, err
		}
		var found []auditv1.Event
		for i := range all {
			if match(&all[i]) {
				found = append(found, all[i])
			}
		}
		if len(found) > 0 {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for an audit event: %w (%d others)", ctx.Err(), len(all))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
