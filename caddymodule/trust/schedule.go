package trust

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/client-go/util/workqueue"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

const (
	// maxRounds bounds how many apiservers are asked at a time. So many that
	// do not answer for ten seconds use up a thousand rounds a minute.
	maxRounds = 192
	// newLeaderWithin is how soon a new leader asks every apiserver.
	newLeaderWithin = 5 * time.Second
)

// schedule has each cluster asked once an interval, a tenth more or less, so that
// replicas and clusters that began together do not ask together. The clusters
// that are due wait in a queue in which namespaces take turns: a namespace with
// thousands of targets that do not answer waits for them alone (TRUST-1).
type schedule struct {
	interval time.Duration
	// ask is one round.
	ask func(context.Context, k8swatch.Key, *Trust)

	mu       sync.Mutex
	leads    bool
	clusters map[k8swatch.Key]*Trust
	tasks    map[k8swatch.Key]*probeTask
	// queue holds the clusters that are due, and those that will be. It may hold
	// more: a cluster that is gone, or whose time has moved; see begin. It is nil
	// until run.
	queue workqueue.TypedDelayingInterface[k8swatch.Key]
}

// probeTask is when a cluster is asked next, and about what.
type probeTask struct {
	due time.Time
	// lastAsked is what the last round was about, zero before the first.
	lastAsked probeScope
}

func newSchedule(interval time.Duration, ask func(context.Context, k8swatch.Key, *Trust)) *schedule {
	return &schedule{interval: interval, ask: ask, tasks: map[k8swatch.Key]*probeTask{}}
}

// run asks until ctx ends, and waits for the rounds under way.
func (s *schedule) run(ctx context.Context) {
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[k8swatch.Key]{
		Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[k8swatch.Key]{Queue: newFairQueue()}),
	})
	context.AfterFunc(ctx, queue.ShutDown)
	s.mu.Lock()
	s.queue = queue
	for key, task := range s.tasks {
		queue.AddAfter(key, time.Until(task.due))
	}
	s.mu.Unlock()

	var rounds sync.WaitGroup
	defer rounds.Wait()
	slots := semaphore.NewWeighted(maxRounds)
	// The slot comes before the cluster: while none is free the order may change.
	for slots.Acquire(ctx, 1) == nil {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		rounds.Go(func() {
			defer slots.Release(1)
			defer queue.Done(key)
			s.round(ctx, key)
		})
	}
}

// round asks a cluster that is due.
func (s *schedule) round(ctx context.Context, key k8swatch.Key) {
	task, cluster, about := s.begin(key)
	if task == nil {
		return
	}
	began := time.Now()
	s.ask(ctx, key, cluster)
	s.end(key, task, about, began)
}

// begin returns what to ask now: nothing when the cluster is gone, is not due or
// is another replica's to ask.
func (s *schedule) begin(key k8swatch.Key) (*probeTask, *Trust, probeScope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	task := s.tasks[key]
	if task == nil || !s.leads {
		return nil, nil, probeScope{}
	}
	if wait := time.Until(task.due); wait > 0 {
		s.queue.AddAfter(key, wait)
		return nil, nil, probeScope{}
	}
	about, _ := s.clusters[key].probeScope()
	return task, s.clusters[key], about
}

// end makes the time of the next round.
func (s *schedule) end(key k8swatch.Key, task *probeTask, about probeScope, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[key] != task {
		return
	}
	task.due = began.Add(s.pause(task.lastAsked == probeScope{}))
	task.lastAsked = about
	if now, _ := s.clusters[key].probeScope(); now != about {
		task.due = time.Now() // it changed during the round
	}
	s.add(key, task)
}

// pause is the time between two rounds. The first is shorter, by up to half,
// which spreads clusters that were all new at the same time.
func (s *schedule) pause(firstRound bool) time.Duration {
	if firstRound {
		return s.interval - rand.N(s.interval/2+1)
	}
	return s.interval*9/10 + rand.N(s.interval/5+1)
}

// set replaces the clusters. A new one is asked at once, and so is one about
// which there is something else to ask (TRUST-2).
func (s *schedule) set(clusters map[k8swatch.Key]*Trust) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters = clusters
	s.update(0)
}

// lead says whether this process asks. A new leader asks every apiserver, spread
// over a few seconds.
func (s *schedule) lead(leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leads && !s.leads {
		// Rounds that are still under way belong to tasks that are no more.
		clear(s.tasks)
		s.leads = true
		s.update(min(newLeaderWithin, s.interval/2))
	}
	s.leads = leads
}

func (s *schedule) isLeading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads
}

// update makes the tasks fit the clusters. New ones are due within spread. The
// lock is held.
func (s *schedule) update(spread time.Duration) {
	for key := range s.tasks {
		if s.clusters[key] == nil {
			delete(s.tasks, key)
		}
	}
	now := time.Now()
	for key, c := range s.clusters {
		about, ok := c.probeScope()
		task := s.tasks[key]
		switch {
		case !ok:
			delete(s.tasks, key)
			continue
		case task == nil:
			task = &probeTask{due: now}
			if spread > 0 {
				task.due = now.Add(rand.N(spread))
			}
			s.tasks[key] = task
		case task.lastAsked == probeScope{} || task.lastAsked == about || !task.due.After(now):
			continue
		default:
			task.due = now
		}
		s.add(key, task)
	}
}

func (s *schedule) add(key k8swatch.Key, task *probeTask) {
	if s.queue != nil {
		s.queue.AddAfter(key, time.Until(task.due))
	}
}
