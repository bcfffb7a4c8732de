package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// seeker is one goroutine's search for a slot. The goroutine waits in the queue only if no slot is free. It makes way
// for the next goroutine as soon as it has claimed a slot.
type seeker struct {
	*Semaphore
	queue     *queue
	candidate elect.Candidate // keeps its cool-down, no matter how often the goroutine queues
	pick      pick
	waiting   waiting
	turn      atomic.Bool
	limit     int    // the number of slots to consider at the next poll, if the goroutine has just released a slot
	quit      func() // called when the search ends, or when its slot is released or lost
}

// errFull means that no slot is free and the caller must not wait here.
var errFull = errors.New("no slot is free")

func (s *Semaphore) seek() *seeker {
	q := join(s.contender.queue())
	k := &seeker{Semaphore: s, queue: q, pick: pick{of: &q.slots}}
	k.waiting.watch, k.waiting.queue, k.waiting.inLine = s.contender.about.Watch(), q, k.turn.Load
	k.waiting.ticket = table.Ticket{Slots: len(s.slots)}
	s.contender.stand(&k.waiting, table.Ticket{}, queueOf(s.name))
	k.candidate = s.contender.candidate(k.waiting.line, s.slots...)
	k.candidate.LeaseRecord.Slots, k.candidate.LeaseRecord.Kind = len(s.slots), table.Semaphore
	k.waiting.since, k.waiting.also = k.candidate.Clock.Now(), k.reason
	k.quit = sync.OnceFunc(func() {
		k.pick.drop()
		k.pass()
		k.queue.leave()
	})
	return k
}

func (k *seeker) line(ctx context.Context) bool {
	in := k.queue.wait(ctx)
	if in {
		k.waiting.line.takeOver(k.queue)
	}
	k.turn.Store(in)
	return in
}

func (k *seeker) pass() {
	if k.turn.CompareAndSwap(true, false) {
		k.waiting.line.handOn(k.queue, k.waiting.last != nil)
		forget := k.queue.unlessWanted()
		k.queue.next()
		forget()
	}
}

// acquire claims a slot and checks that all holders know it (see isKnown). If they do not, acquire releases the slot
// and tries again. It also tries again if it loses the slot during the check, unless try is set.
func (k *seeker) acquire(ctx context.Context, try bool) (*Permit, error) {
	retry := elect.Backoff{Max: k.contender.maxPause()}
	for {
		k.candidate = k.candidate.Again()
		t, err := k.contender.acquire(ctx, &k.candidate, k.choose, try, &k.waiting)
		if err != nil {
			return nil, err
		}
		switch {
		case t == nil && k.waiting.last != nil: // a newer version holds the slots
			return nil, errFull
		case t == nil: // another process claimed that slot first, but other slots may be free
			continue
		}
		k.waiting.line.served()
		k.pass()
		garbage := new(atomic.Bool)
		p := &Permit{held: k.contender.keep(t, k.waiting.watch, garbage, k.quit), slot: t.Names()[0], quit: k.quit}
		runtime.AddCleanup(p, forget, garbage)
		known, err := k.isKnown(ctx, p, try)
		if known && p.Token() != 0 {
			context.AfterFunc(t.Context(), k.quit)
			return p, nil
		}
		lost, given := p.Token() == 0, p.giveBackLater(ctx)
		byNewer := k.contender.heldByNewer(err)
		switch {
		case ctx.Err() != nil:
			return nil, (&waiting{since: k.waiting.since, last: err}).ended(ctx, k.contender.config.Clock)
		case byNewer && try:
			return nil, errFull
		case lost && try && err == nil:
			return nil, fmt.Errorf("%w: %w", ErrLost, cmp.Or(context.Cause(t.Context()), elect.ErrExpired))
		case err != nil && !byNewer && (try || !lost):
			return nil, err
		}
		if !lost { // wait, because the candidate considers the slot free before it is released
			select {
			case <-given:
			case <-ctx.Done():
			}
		}
		if byNewer {
			elect.Sleep(ctx, k.contender.config.Clock, retry.Pause(k.contender.config.Clock))
		}
	}
}

// giveBackLater releases a slot that was not returned to a caller. The channel is closed when that is done.
func (p *Permit) giveBackLater(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.held.leave() {
			_ = p.held.giveBack(context.WithoutCancel(ctx), table.Due{})
		}
	}()
	return done
}

// isKnown reports whether all slot holders know about p's slot. They may not, because processes can give the semaphore
// different sizes. The poll before the claim can't tell, because a process with a smaller size may have claimed a slot
// since then. So isKnown reads all held slots again. Without this second read, slots beyond the smaller size would be
// claimed again and again.
func (k *seeker) isKnown(ctx context.Context, p *Permit, try bool) (bool, error) {
	retry := elect.Backoff{Max: k.contender.maxPause()}
	for {
		holders, err := k.holders(ctx)
		switch {
		case err == nil:
			k.waiting.patience.Passed("holders")
			k.limit = k.common(holders)
			return p.slot < slot(k.name, k.limit), nil
		case try || k.waiting.patience.Ends("holders", err) || errors.Is(err, table.ErrNewer) || ctx.Err() != nil:
			return false, fmt.Errorf("can't read which processes hold the other slots: %w", err)
		}
		elect.Sleep(ctx, k.contender.config.Clock, retry.Pause(k.contender.config.Clock))
	}
}

// choose selects a free slot that all holders and waiters know, and that no other goroutine of this process has
// selected.
func (k *seeker) choose(seen []elect.LockView) elect.Decision {
	common := min(k.common(holdersOf(seen)), k.waiting.line.slots(len(k.slots)), cmp.Or(k.limit, maxSlots))
	k.limit = 0
	free := slices.DeleteFunc(slices.Clone(seen), func(o elect.LockView) bool { return o.FreeIn > 0 || o.Name >= slot(k.name, common) })
	var passed []table.Write
	chosen, wait, ok := k.pick.from(free, func(free []elect.LockView) (slot int, wait time.Duration, ok bool) {
		slot, wait, passed, ok = k.waiting.line.slot(free)
		return slot, wait, ok
	})
	switch {
	case ok:
		return elect.Claim(chosen).As(k.waiting.line.urgency()).And(passed...)
	case !k.turn.Load():
		return elect.Blocked(errFull)
	case wait == 0:
		wait = k.untilFree(seen)
	}
	return elect.Wait(wait)
}

// untilFree returns the time until one of the slots can be free.
func (k *seeker) untilFree(seen []elect.LockView) time.Duration {
	wait := k.contender.config.Lease
	for _, o := range seen {
		if o.FreeIn > 0 {
			wait = min(wait, o.FreeIn)
		}
	}
	return wait
}

// holdersOf returns the slots in seen that are held.
func holdersOf(seen []elect.LockView) (holders []table.Observation) {
	for _, o := range seen {
		if o.FreeIn > 0 && o.Confirmed() && o.LeaseRecord != nil {
			holders = append(holders, o.Observation)
		}
	}
	return holders
}

// reason explains why free slots were not claimed, if another process gives the semaphore fewer slots.
func (k *seeker) reason(seen []elect.LockView) string {
	common := k.common(holdersOf(seen))
	if common == len(k.slots) {
		return ""
	}
	return fmt.Sprintf(" (another process gives this semaphore %d slots, but this one gives it %d; while that process holds a slot, only the first %[1]d slots can be acquired)", common, len(k.slots))
}
