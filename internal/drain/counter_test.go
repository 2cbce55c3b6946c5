package drain

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counter
		waited := func(limit time.Duration) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			start := time.Now()
			err := c.Wait(ctx)
			return time.Since(start), err
		}
		if d, err := waited(time.Minute); d != 0 || err != nil {
			t.Errorf("nothing is open: %s, %v", d, err)
		}
		c.Add(2)
		if d, err := waited(time.Minute); d != time.Minute || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("two are open: %s, %v", d, err)
		}
		go func() {
			time.Sleep(time.Second)
			c.Add(-1)
			time.Sleep(time.Second)
			c.Add(-1)
			c.Add(1)
		}()
		if d, err := waited(time.Minute); d != 2*time.Second || err != nil {
			t.Errorf("the last one closed after 2 s: %s, %v", d, err)
		}
		if n := c.Len(); n != 1 {
			t.Errorf("%d are open", n)
		}
	})
}

func TestCounterConcurrently(t *testing.T) {
	var c Counter
	c.Add(1)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 1000 {
				c.Add(1)
				c.Add(-1)
			}
		})
		wait.Go(func() {
			if err := c.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	c.Add(-1)
	wait.Wait()
	if n := c.Len(); n != 0 {
		t.Errorf("%d are open", n)
	}
}
