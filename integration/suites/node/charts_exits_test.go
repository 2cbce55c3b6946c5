package node

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// exits are the last states of pods, which the API forgets with the pod.
type exits struct {
	watching sync.WaitGroup
	mu       sync.Mutex
	pods     map[string]*corev1.Pod
	// deadlines are where the grace periods end. The last state of a pod does
	// not say: its deletion timestamp is then the moment at which it went.
	deadlines map[string]time.Time
}

// watchExits follows the pods of the proxy's namespace for the time of a test.
func (i *installation) watchExits(t *testing.T) *exits {
	t.Helper()
	core, err := coreclient.NewForConfig(i.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, err := core.Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	e := &exits{pods: map[string]*corev1.Pod{}, deadlines: map[string]time.Time{}}
	e.watching.Go(func() {
		for event := range w.ResultChan() {
			if p, ok := event.Object.(*corev1.Pod); ok {
				e.note(p)
			}
		}
	})
	t.Cleanup(func() { cancel(); w.Stop(); e.watching.Wait() })
	return e
}

func (e *exits) note(p *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pods[p.Name] = p
	if _, ok := e.deadlines[p.Name]; !ok && p.DeletionTimestamp != nil {
		e.deadlines[p.Name] = p.DeletionTimestamp.Time
	}
}

// mustBeClean checks that those pods have ended by themselves: with exit code
// 0 and within the time they were given (STREAM-2).
func (e *exits) mustBeClean(t *testing.T, old []corev1.Pod) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range old {
		last, deadline := e.pods[p.Name], e.deadlines[p.Name]
		if deadline.IsZero() || len(last.Status.ContainerStatuses) != 1 || last.Status.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("pod %s was not seen to end: %+v", p.Name, last)
			continue
		}
		end := last.Status.ContainerStatuses[0].State.Terminated
		asked := deadline.Add(-time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second)
		t.Logf("pod %s ended with code %d after %s", p.Name, end.ExitCode, end.FinishedAt.Sub(asked))
		if end.ExitCode != 0 || !end.FinishedAt.Time.Before(deadline) {
			t.Errorf("pod %s: %+v", p.Name, end)
		}
	}
}
