package boundedjson

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// AUTH-13: the servers of one tenant that never end their large answers leave room
// for those of others, and for those of other objects in the same namespace.
func TestStalledAnswersLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(LargeAnswers)
		take := func(owners ...Owner) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.take(ctx, owners)
			return err == nil
		}
		hostile := func(name string) Owner { return Owner{"hostile", name} }
		count := func(owner Owner) (n int) {
			for n < LargeAnswers+1 && take(owner) {
				n++
			}
			return n
		}
		if n := count(hostile("a")); n != 2 {
			t.Errorf("one object has %d slots", n)
		}
		if n := count(hostile("b")) + count(hostile("c")); n != 2 {
			t.Errorf("further objects of the namespace have %d slots", n)
		}
		// What waits does not keep others waiting.
		for range 100 {
			go take(hostile("d"))
		}
		synctest.Wait()
		if !take(Owner{"other", "a"}) {
			t.Error("another namespace has no slot")
		}
		// The key set of an issuer that the hostile namespace uses as well.
		if !take(hostile("a"), Owner{"other", "a"}) {
			t.Error("a shared issuer has no slot")
		}
		if n := count(Owner{"third", "a"}); n != 2 {
			t.Errorf("a third namespace has %d slots", n)
		}
		if take(Owner{"fourth", "a"}) {
			t.Error("there are more slots than there should be")
		}
	})
}

// A slot that is given back goes to whoever waited longest and has not its share.
func TestSlotsAreHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4) // two for a namespace, one for an object
		a, b, other := Owner{"n", "a"}, Owner{"n", "b"}, Owner{"m", "a"}
		for _, o := range []Owner{a, b} {
			if _, err := s.take(t.Context(), []Owner{o}); err != nil {
				t.Fatal(err)
			}
		}
		granted := make(chan string, 3)
		wait := func(ctx context.Context, name string, o Owner) {
			go func() {
				if _, err := s.take(ctx, []Owner{o}); err == nil {
					granted <- name
				}
			}()
			synctest.Wait()
		}
		left, leave := context.WithCancel(t.Context())
		wait(left, "left", a)
		wait(t.Context(), "first", a)
		wait(t.Context(), "second", b)
		wait(t.Context(), "other", other)
		if got := <-granted; got != "other" {
			t.Errorf("%s has a slot", got)
		}
		leave()
		synctest.Wait()
		s.give(b)
		if got := <-granted; got != "second" {
			t.Errorf("after b: %s", got)
		}
		s.give(a)
		if got := <-granted; got != "first" {
			t.Errorf("after a: %s", got)
		}
		for _, o := range []Owner{a, b, other} {
			s.give(o)
		}
		if len(s.waiting)+len(s.objects)+len(s.namespaces)+s.used != 0 {
			t.Errorf("something is left: %+v", s)
		}
	})
}
