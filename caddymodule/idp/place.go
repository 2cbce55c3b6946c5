package idp

import (
	"bytes"
	"context"
	"io"
)

// The bytes of an answer (AUTH-13). What is read of it beyond a small one needs
// one of the places that the process has: read, an answer takes several times
// its bytes, and there are as many providers as authors of a ProxyKubeApi name.
const (
	MaxAnswer    = 1 << 20
	smallAnswer  = 64 << 10
	largeAnswers = 8
)

// The faults of a large answer.
const (
	TooLarge Fault = "its answer is over 1 MiB"
	NoPlace  Fault = "its answer is over 64 KiB, and too many such answers are read at once"
)

var places = make(chan struct{}, largeAnswers)

// Place is the place of an answer, which it takes when it turns out to be large.
// The zero value is ready for use, by one goroutine.
type Place struct{ taken bool }

// Read reads an answer. It waits for a place until ctx ends. The error is
// TooLarge, NoPlace or what reading gave.
func (p *Place) Read(ctx context.Context, answer io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(answer, smallAnswer+1))
	if err != nil || len(body) <= smallAnswer {
		return body, err
	}
	if !p.take(ctx) {
		return nil, NoPlace
	}
	all := bytes.NewBuffer(body)
	if _, err := all.ReadFrom(io.LimitReader(answer, MaxAnswer-smallAnswer)); err != nil {
		return nil, err
	}
	if all.Len() > MaxAnswer {
		return nil, TooLarge
	}
	return all.Bytes(), nil
}

func (p *Place) take(ctx context.Context) bool {
	if p.taken {
		return true
	}
	select {
	case places <- struct{}{}:
		p.taken = true
	case <-ctx.Done():
	}
	return p.taken
}

// Leave gives the place back, if one was taken: when of the answer nothing is
// left but what is kept.
func (p *Place) Leave() {
	if p.taken {
		p.taken = false
		<-places
	}
}
