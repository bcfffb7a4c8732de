package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/wait"
)

// seeker searches for a slot on behalf of one goroutine. The goroutine queues if it finds no slot that it can claim, or
// if another goroutine is at the front of the queue. A call that must not wait returns instead. Once the goroutine has
// claimed a slot, it makes way for the next goroutine.
type seeker struct {
	*Semaphore
	*waiter
	candidate elect.Candidate // keeps its cool-down, no matter how often the goroutine queues
	retry     elect.Backoff
}

// errFull means that no slot can be claimed now, so the caller must queue or give up.
var errFull = errors.New("no slot is free")

func (s *Semaphore) seeker(try bool, garbage *atomic.Bool) *seeker {
	k := &seeker{Semaphore: s, waiter: s.contender.waiter(try, garbage, wait.SlotQueue(s.name)), retry: elect.Backoff{Max: wait.MaxPause(&s.contender.config)}}
	k.choose, k.also, k.Ticket.Slots = k.pick, k.reason, len(s.slots.Names)
	k.candidate = k.waiter.candidate(s.slots.Names...)
	k.candidate.LeaseRecord.Slots, k.candidate.LeaseRecord.Kind = len(s.slots.Names), table.Semaphore
	return k
}

// seek claims a slot that all holders know.
func (k *seeker) seek(ctx context.Context) (*held, error) {
	for queues := k.queue.isTaken(); ; {
		if queues && !k.front && !k.enter(ctx) {
			if k.try {
				return nil, errFull
			}
			return nil, k.ended(ctx)
		}
		if queues && k.queue.works.Load() { // as if it had sent the requests itself, because it has waited behind those who did
			k.waiter.patience.Passed("poll")
		}
		k.candidate = k.candidate.Again()
		t, err := k.waiter.acquire(ctx, &k.candidate)
		switch {
		case errors.Is(err, errFull) && !k.try:
			queues = true
			continue
		case t == nil && err == nil: // with try, a newer version holds slots
			return nil, errFull
		case err != nil:
			return nil, err
		}
		k.queue.works.Store(true)
		k.pass()
		queues = false
		if h, err := k.settle(ctx, k.keep(t)); h != nil || err != nil {
			return h, err
		}
	}
}

// settle returns h if all holders know the slot that h holds (see wait.Slots.IsKnown). If a holder does not know the
// slot, if the check fails, or if the slot is lost in the meantime, settle releases the slot. If settle returns neither
// h nor an error, the caller tries again.
func (k *seeker) settle(ctx context.Context, h *held) (*held, error) {
	known := false
	err := k.persist(ctx, k.waiter.patience, k.try, func(attempt context.Context) (err error) {
		if known, err = k.slots.IsKnown(attempt, k.contender.table, h.term.Names()[0]); !elect.IsOver(ctx) {
			k.note(found{last: err})
		}
		return err
	})
	lost := h.token() == 0
	if known && !lost {
		context.AfterFunc(h.term.Over(), k.leave)
		return h, nil
	}
	byNewer := k.contender.heldByNewer(err)
	switch {
	case ctx.Err() != nil:
		err = k.ended(ctx)
	case byNewer && k.try:
		err = errFull
	case lost && k.try && err == nil:
		err = fmt.Errorf("%w: %w", ErrLost, cmp.Or(context.Cause(h.term.Over()), elect.ErrExpired))
	case byNewer, lost && !k.try:
		err = nil
	}
	if err != nil {
		go h.giveUp(ctx)
		return nil, err
	}
	h.giveUp(ctx) // before the next attempt, because the candidate now considers the slot free
	if byNewer {
		elect.Sleep(ctx, k.config.Clock, k.retry.Pause(k.config.Clock))
	}
	return nil, nil
}

// giveUp releases a slot that is not returned to a caller.
func (h *held) giveUp(ctx context.Context) {
	if h.leave() {
		_ = h.giveBack(context.WithoutCancel(ctx))
	}
}

// pick selects a free slot that no other goroutine of this process has chosen. Without this check, a goroutine whose
// poll preceded another goroutine's claim could choose the same slot.
func (k *seeker) pick(seen []elect.LockView) elect.Decision {
	free := k.slots.Free(&k.Place, seen)
	queues.Lock()
	defer queues.Unlock()
	delete(k.queue.slots, k.waiter)
	taken := map[string]bool{}
	for _, name := range k.queue.slots {
		taken[name] = true
	}
	free = slices.DeleteFunc(free, func(o elect.LockView) bool { return taken[o.Name] })
	d := k.slots.Pick(&k.Place, free, seen)
	switch {
	case d.Claim != nil:
		k.queue.slots[k.waiter] = d.Claim[0].Name
	case !k.front:
		return elect.Decision{Err: errFull}
	}
	return d
}

// reason explains why free slots were not claimed, if another process gives the semaphore fewer slots than this one.
func (k *seeker) reason(seen []elect.LockView) string {
	common := k.slots.Common(seen)
	if common == len(k.slots.Names) {
		return ""
	}
	return fmt.Sprintf(" (another process gives this semaphore %d slots, but this process gives it %d; while the other process holds a slot, only the first %[1]d slots can be acquired; use the same size in all processes)", common, len(k.slots.Names))
}
