package keys

import (
	"context"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// keyRead is a read in flight.
type keyRead struct {
	number uint64
	begun  time.Time
	done   chan struct{}
	err    error // set before done is closed
}

// startLocked begins a read, or joins the one in flight. With discovery it
// asks for the address of the key set first.
func (s *keySet) startLocked(discovery bool) *keyRead {
	if s.reading != nil {
		return s.reading
	}
	s.reads++
	read := &keyRead{number: s.reads, begun: s.now(), done: make(chan struct{})}
	s.reading = read
	at := s.endpoints
	if discovery || s.fault != "" {
		at = Endpoints{}
	}
	go func() { s.finish(read, s.fetch(at)) }()
	return read
}

// fetched is what a read brought.
type fetched struct {
	endpoints Endpoints
	keys      []*Key
	err       error
}

// fetch asks the provider. A panic over what it answered is its fault.
func (s *keySet) fetch(at Endpoints) (f fetched) {
	defer func() {
		if recover() != nil {
			f.err = idp.Fault("its answer cannot be read")
		}
	}()
	ctx, cancel := context.WithTimeout(s.ctx, s.limit)
	defer cancel()
	defer s.client.CloseIdleConnections()
	f.endpoints = at
	if at.keys == "" {
		if f.endpoints, f.err = discover(ctx, s.client, s.issuer, s.discoveryURL); f.err != nil {
			return f
		}
	}
	f.err = get(ctx, s.client, f.endpoints.keys, func(document []byte) (err error) {
		f.keys, err = parseKeys(document)
		return err
	})
	return f
}

// finish records what a read brought and lets those that wait go on.
func (s *keySet) finish(read *keyRead, f fetched) {
	s.mu.Lock()
	before := s.fault
	s.fault = ""
	s.lastRead = s.now()
	switch {
	case f.err != nil:
		s.fault = asFault(f.err)
	case !usable(f.keys):
		// The old keys are gone all the same.
		f.err = idp.Fault("it publishes no key that can verify a signature")
		s.fault = asFault(f.err)
		fallthrough
	default:
		s.endpoints = f.endpoints
		s.replaceLocked(f.keys, read)
	}
	s.quietLocked()
	changed := before != s.fault
	s.reading = nil
	read.err = f.err
	s.mu.Unlock()
	close(read.done)
	if changed && s.onFault != nil && s.ctx.Err() == nil {
		s.onFault(s.issuer)
	}
}

// replaceLocked puts newly read keys in force. A key that was there before
// keeps its value; one that is not there any more is marked.
func (s *keySet) replaceLocked(keys []*Key, read *keyRead) {
	var old []*Key
	if known := s.known.Load(); known != nil {
		old = known.keys
	}
	kept := make(map[*Key]bool, len(old))
	for i, key := range keys {
		for _, before := range old {
			if before.same(key) {
				keys[i] = before
				kept[before] = true
				break
			}
		}
	}
	s.known.Store(&knownKeys{keys: keys, endpoints: s.endpoints, at: read.begun, read: read.number})
	for _, before := range old {
		if !kept[before] {
			before.withdrawn.Store(true)
		}
	}
}

// quietLocked says when a cache hit has to look closer again.
func (s *keySet) quietLocked() {
	known := s.known.Load()
	if known == nil || !usable(known.keys) {
		s.quietUntil.Store(0)
		return
	}
	old := known.at.Add(keysAge - keysAhead)
	until := old
	if s.fault != "" {
		if retry := s.lastRead.Add(retryFreshKeys); retry.Before(old) {
			until = retry
		} else if !s.lastRead.Before(old) {
			until = s.lastRead.Add(retryOldKeys)
		}
	}
	if stale := known.at.Add(keysStale); stale.Before(until) {
		until = stale
	}
	s.quietUntil.Store(until.UnixNano())
}

func asFault(err error) idp.Fault {
	if f, ok := err.(idp.Fault); ok {
		return f
	}
	return "it cannot be asked"
}
