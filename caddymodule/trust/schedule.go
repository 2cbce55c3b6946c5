package trust

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
	kinds
)

// lane is a number of slots.
type lane struct{ slots, used int }

func (l *lane) free() bool { return l.used < l.slots }

// appointment is when a cluster is asked next.
type appointment struct {
	namespace string
	key       k8swatch.Key
	cluster   *Trust
	// asked is what the last round was about.
	asked   subject
	manners manners
	due     time.Time
	// index is the place in the queue of its manners, -1 outside of it: while
	// a round is under way, and when the cluster is gone.
	index int
	// lane is the one whose slot the round under way holds, nil while there
	// is none.
	lane *lane
}

func (a *appointment) Before(other *appointment) bool { return a.due.Before(other.due) }
func (a *appointment) Place() *int                    { return &a.index }

// schedule gives each cluster its own time, an interval after the last, a tenth
// more or less, so that replicas and clusters that began together do not ask
// together.
type schedule struct {
	interval time.Duration
	// ask is one round; it reports whether the target answered.
	ask func(context.Context, k8swatch.Key, *Trust) (answered bool)

	woken  chan struct{}
	rounds sync.WaitGroup

	mu           sync.Mutex
	leads        bool
	clusters     map[k8swatch.Key]*Trust
	seen         bool // appointments were made for clusters
	appointments map[k8swatch.Key]*appointment
	waiting      [kinds]*queue
	// spread is the time over which new appointments are spread.
	spread time.Duration
	// quick and slow are the lanes of answering targets and of the others,
	// overdue is the rounds that gave a slot of quick up.
	quick, slow, overdue lane
}

func newSchedule(interval time.Duration, ask func(context.Context, k8swatch.Key, *Trust) bool) *schedule {
	s := &schedule{
		interval: interval, ask: ask,
		woken:        make(chan struct{}, 1),
		appointments: map[k8swatch.Key]*appointment{},
		quick:        lane{slots: slotsOfAnswering}, slow: lane{slots: slotsOfOthers},
	}
	for kind := range s.waiting {
		s.waiting[kind] = newQueue()
	}
	return s
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

// set replaces the clusters.
func (s *schedule) set(clusters map[k8swatch.Key]*Trust) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters, s.seen = clusters, false
	s.poke()
}

func (s *schedule) isLeading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads
}

func (s *schedule) lead(leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leads && !s.leads {
		// What was known of due times is another leader's business by now.
		// Rounds that are still under way end without one.
		for key := range s.appointments {
			s.cancel(key)
		}
		s.seen, s.spread = false, min(newLeaderWithin, s.interval/2)
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
	if s.seen {
		return
	}
	for key, c := range s.clusters {
		about, ok := c.subject()
		a := s.appointments[key]
		switch {
		case !ok:
			s.cancel(key)
			continue
		case a == nil:
			a = &appointment{namespace: key.Namespace, key: key, due: now.Add(s.delay()), index: -1}
			s.appointments[key] = a
			s.wait(a)
		case a.lane == nil && about != a.asked:
			s.leave(a)
			a.renew(about, now)
			s.wait(a)
		}
		a.cluster = c
	}
	for key := range s.appointments {
		if s.clusters[key] == nil {
			s.cancel(key)
		}
	}
	s.seen, s.spread = true, 0
}

// delay spreads the first appointments of a new leader.
func (s *schedule) delay() time.Duration {
	if s.spread <= 0 {
		return 0
	}
	return rand.N(s.spread)
}

func (s *schedule) wait(a *appointment) { s.waiting[a.manners].push(a) }

func (s *schedule) leave(a *appointment) {
	if a.index >= 0 {
		s.waiting[a.manners].remove(a)
	}
}

// cancel forgets an appointment. A round under way ends without another.
func (s *schedule) cancel(key k8swatch.Key) {
	if a := s.appointments[key]; a != nil {
		s.leave(a)
		a.cluster = nil
		delete(s.appointments, key)
	}
}

// renew brings a round forward that is about something else than the last one.
func (a *appointment) renew(about subject, now time.Time) {
	if about == a.asked || a.asked == (subject{}) {
		return // the same, or never asked and so due already
	}
	if about.endpoint != a.asked.endpoint {
		a.manners = untried
	}
	if a.due.After(now) {
		a.due = now
	}
}

// next takes a round to start out of its queue, with the lane to start it in;
// or says how long there is none, if no round ends and nothing changes before.
func (s *schedule) next(now time.Time) (*appointment, *lane, time.Duration) {
	var due [kinds]bool
	var turn [kinds]time.Time
	wait := s.interval
	for kind, q := range s.waiting {
		var waits bool
		turn[kind], waits = q.due()
		switch {
		case !waits:
		case turn[kind].After(now):
			wait = min(wait, turn[kind].Sub(now))
		default:
			due[kind] = true
		}
	}
	take := func(kind manners, l *lane) (*appointment, *lane, time.Duration) {
		return s.waiting[kind].take(now), l, 0
	}
	// Nobody knows yet how those behave that were never asked: they use what
	// the answering ones leave, and take turns with those that did not answer.
	switch {
	case s.quick.free() && due[answering]:
		return take(answering, &s.quick)
	case s.quick.free() && due[untried]:
		return take(untried, &s.quick)
	case s.slow.free() && due[untried] && !(due[silent] && turn[silent].Before(turn[untried])):
		return take(untried, &s.slow)
	case s.slow.free() && due[silent]:
		return take(silent, &s.slow)
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
		answered := s.ask(ctx, a.key, c)
		overdue.Stop()
		s.end(a, began, firstRound, answered)
	})
}

// giveUp has a round that takes long give its slot back: many targets that fail
// together must not fill the lane. Nor do such rounds use the other one, which
// somebody's targets that fail every other time would fill; as many slots as
// there are every slowAfter, and the end of each round, bound them.
func (s *schedule) giveUp(a *appointment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.lane != &s.quick {
		return
	}
	s.quick.used--
	s.overdue.used++
	a.lane = &s.overdue
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
	if a.cluster != nil {
		// The cluster may have changed during the round.
		about, _ := a.cluster.subject()
		a.renew(about, now)
		s.wait(a)
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
