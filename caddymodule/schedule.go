package caddymodule

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

const (
	// slotsOfAnswering and slotsOfOthers bound how many apiservers are asked at a
	// time: of those that answered last time, and of the rest. The rest may
	// take as long as they like without keeping the former waiting.
	slotsOfAnswering = 32
	slotsOfOthers    = 32
	// slowAfter is when a round gives the slot of an answering target up.
	slowAfter = 2 * time.Second
	// newLeaderWithin is how soon a new leader asks every apiserver.
	newLeaderWithin = 5 * time.Second
)

// manners is how a target answered its last round.
type manners int

const (
	untried   manners = iota // never asked
	answering                // its last round was answered, and soon
	silent                   // it was not
	kinds     = 3
)

// lane is a number of slots.
type lane struct{ slots, used int }

func (l *lane) free() bool { return l.used < l.slots }

// appointment is when a cluster is asked next.
type appointment struct {
	cluster *cluster
	// asked is what the last round was about.
	asked   subject
	manners manners
	due     time.Time
	// lane is the one whose slot the round under way holds, nil while there
	// is none.
	lane *lane
}

// schedule gives each cluster its own time, an interval after the last, a tenth
// more or less, so that replicas and clusters that began together do not ask
// together.
type schedule struct {
	interval time.Duration
	load     func() *snapshot
	// ask is one round; it reports whether the target answered.
	ask func(context.Context, *cluster) (answered bool)

	woken  chan struct{}
	rounds sync.WaitGroup

	mu           sync.Mutex
	leads        bool
	seen         *snapshot // that appointments were last made for
	appointments map[k8swatch.Key]*appointment
	// spread is the time over which new appointments are spread.
	spread time.Duration
	// quick and slow are the lanes of answering targets and of the others.
	quick, slow lane
}

func newSchedule(interval time.Duration, load func() *snapshot, ask func(context.Context, *cluster) bool) *schedule {
	return &schedule{
		interval: interval, load: load, ask: ask,
		woken: make(chan struct{}, 1), leads: true,
		appointments: map[k8swatch.Key]*appointment{},
		quick:        lane{slots: slotsOfAnswering}, slow: lane{slots: slotsOfOthers},
	}
}

// run keeps the appointments until ctx ends, and waits for the rounds under way.
func (s *schedule) run(ctx context.Context) {
	defer s.rounds.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.woken:
		}
		timer.Reset(s.begin(ctx))
	}
}

// poke has run look again.
func (s *schedule) poke() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *schedule) lead(leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leads && !s.leads {
		// What was known of due times is another leader's business by now.
		// Rounds that are still under way end without one.
		clear(s.appointments)
		s.seen, s.spread = nil, min(newLeaderWithin, s.interval/2)
	}
	s.leads = leads
	s.poke()
}

// begin starts the rounds that are due and returns when to look again at the
// latest.
func (s *schedule) begin(ctx context.Context) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leads {
		return s.interval
	}
	now := time.Now()
	s.follow(now)
	for {
		a, l, wait := s.next(now)
		if a == nil {
			return wait
		}
		s.start(ctx, a, l)
	}
}

// follow makes appointments for the clusters of the newest snapshot: at once
// for what was never asked about (TRUST-2).
func (s *schedule) follow(now time.Time) {
	snap := s.load()
	if snap == nil || snap == s.seen {
		return
	}
	for key, c := range snap.clusters {
		about, ok := c.subject()
		if !ok {
			delete(s.appointments, key)
			continue
		}
		a := s.appointments[key]
		if a == nil {
			due := now
			if s.spread > 0 {
				due = now.Add(rand.N(s.spread))
			}
			a = &appointment{due: due}
			s.appointments[key] = a
		}
		a.cluster = c
		if a.lane == nil && a.asked != (subject{}) {
			a.renew(about, now)
		}
	}
	for key := range s.appointments {
		if snap.clusters[key] == nil {
			delete(s.appointments, key)
		}
	}
	s.seen, s.spread = snap, 0
}

// renew brings a round forward that is about something else than the last one.
func (a *appointment) renew(about subject, now time.Time) {
	if about == a.asked {
		return
	}
	if about.endpoint != a.asked.endpoint {
		a.manners = untried
	}
	if a.due.After(now) {
		a.due = now
	}
}

// next returns a round to start and the lane to start it in; or how long there
// is none, if no round ends and nothing changes before.
func (s *schedule) next(now time.Time) (*appointment, *lane, time.Duration) {
	var first [kinds]*appointment // the one that is due longest, of each kind
	wait := s.interval
	for _, a := range s.appointments {
		switch {
		case a.lane != nil:
		case a.due.After(now):
			wait = min(wait, a.due.Sub(now))
		case first[a.manners] == nil || a.due.Before(first[a.manners].due):
			first[a.manners] = a
		}
	}
	// Nobody knows yet how those behave that were never asked: they use what
	// the answering ones leave, and go before those that did not answer.
	switch fresh := first[untried]; {
	case s.quick.free() && first[answering] != nil:
		return first[answering], &s.quick, 0
	case s.quick.free() && fresh != nil:
		return fresh, &s.quick, 0
	case s.slow.free() && fresh != nil:
		return fresh, &s.slow, 0
	case s.slow.free() && first[silent] != nil:
		return first[silent], &s.slow, 0
	}
	return nil, nil, wait
}

// start begins a round, with the lock held.
func (s *schedule) start(ctx context.Context, a *appointment, l *lane) {
	firstRound := a.asked == subject{}
	c, began := a.cluster, time.Now()
	a.asked, _ = c.subject()
	a.lane = l
	l.used++
	s.rounds.Go(func() {
		overdue := time.AfterFunc(slowAfter, func() { s.giveUp(a) })
		answered := s.ask(ctx, c)
		overdue.Stop()
		s.end(a, began, firstRound, answered)
	})
}

// giveUp moves a round that takes long to the lane of those that do, even when
// that is full: many targets that fail together must not fill the other.
func (s *schedule) giveUp(a *appointment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.lane != &s.quick {
		return
	}
	s.quick.used--
	s.slow.used++
	a.lane = &s.slow
	s.poke()
}

// end gives the slot back and makes the next appointment.
func (s *schedule) end(a *appointment, began time.Time, firstRound, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.lane.used--
	a.lane = nil
	now := time.Now()
	a.manners = silent
	if answered && now.Sub(began) < slowAfter {
		a.manners = answering
	}
	a.due = began.Add(s.pause(firstRound))
	if about, ok := a.cluster.subject(); ok {
		// The cluster may have changed during the round.
		a.renew(about, now)
	}
	s.poke()
}

// pause is the time between two rounds. The first is shorter, by up to half,
// which spreads clusters that were all new at the same time.
func (s *schedule) pause(firstRound bool) time.Duration {
	if firstRound {
		return s.interval - rand.N(s.interval/2+1)
	}
	return s.interval*9/10 + rand.N(s.interval/5+1)
}
