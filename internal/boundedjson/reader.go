package boundedjson

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// The sizes of an answer, in bytes.
const (
	// MaxAnswer is the most that is read of an answer.
	MaxAnswer = 1 << 20
	// SmallAnswer is what is read of an answer without waiting for a slot.
	SmallAnswer = 64 << 10
	// LargeAnswers is how many slots a process has for larger answers.
	LargeAnswers = 8
)

// The errors of Read, whose texts may be shown.
var (
	ErrTooLarge = errors.New("its answer is over 1 MiB")
	ErrNoSlot   = errors.New("its answer is over 64 KiB, and too many such answers are read at once")
)

// Reader reads answers. It has a number of slots for large answers, which all
// servers share that are asked through it. It is safe for concurrent use.
type Reader struct {
	slots  *slots
	owners func() []Owner
}

// NewReader makes a Reader for that many large answers at once, which all count for
// one owner.
func NewReader(large int) *Reader {
	r := &Reader{slots: newSlots(large)}
	return r.For(func() []Owner { return []Owner{{}} })
}

// For is a Reader with the same slots, for a server that these objects have asked:
// at least one.
func (r *Reader) For(owners func() []Owner) *Reader { return &Reader{r.slots, owners} }

// ForObject is For a single object.
func (r *Reader) ForObject(o Owner) *Reader { return r.For(func() []Owner { return []Owner{o} }) }

// Read reads an answer to its end. An answer that turns out to be large waits
// for a slot until ctx ends, and keeps the slot until release is called: when
// nothing is left of the answer but what is kept of it. release must be called
// once unless there is an error: ErrTooLarge, ErrNoSlot, or what reading gave.
func (r *Reader) Read(ctx context.Context, answer io.Reader) (body []byte, release func(), err error) {
	body, err = io.ReadAll(io.LimitReader(answer, SmallAnswer+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(body) <= SmallAnswer:
		return body, func() {}, nil
	}
	owner, err := r.slots.take(ctx, r.owners())
	if err != nil {
		return nil, nil, err
	}
	release = func() { r.slots.give(owner) }
	all := bytes.NewBuffer(body)
	if _, err = all.ReadFrom(io.LimitReader(answer, MaxAnswer-SmallAnswer)); err == nil && all.Len() > MaxAnswer {
		err = ErrTooLarge
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return all.Bytes(), release, nil
}

// InUse is how many slots are taken.
func (r *Reader) InUse() int {
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	return r.slots.used
}
