package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// seeker is one goroutine that wants a slot. It takes its place in the queue only if no slot is free, and gives
// its turn to the next as soon as it has chosen one.
type seeker struct {
	*Semaphore
	queue     *queue
	candidate elect.Candidate // which rests, if it has to, however often it queues
	pick      pick
	waiting   waiting
	turn      atomic.Bool
	quit      func() // at the end, of the slot too
}

// errFull says that no slot is free, to one that may not wait for it now.
var errFull = errors.New("no slot is free")

func (s *Semaphore) seek() *seeker {
	q := join(s.contender.queue())
	k := &seeker{Semaphore: s, queue: q, pick: pick{of: &q.slots}}
	k.waiting.watch = s.contender.about.Watch()
	k.candidate = s.contender.config.Candidate(k.waiting.watch.Table(s.contender.table), s.slots...)
	k.candidate.Promise.Slots = len(s.slots)
	k.waiting.since = k.candidate.Clock.Now()
	k.quit = sync.OnceFunc(func() {
		k.pick.drop()
		k.pass()
		k.queue.leave()
	})
	return k
}

func (k *seeker) line(ctx context.Context) bool {
	in := k.queue.wait(ctx)
	k.turn.Store(in)
	return in
}

func (k *seeker) pass() {
	if k.turn.CompareAndSwap(true, false) {
		k.queue.next()
	}
}

// acquire returns a slot that is held and agreed on. A slot that is not agreed on is given back in the
// background. One that is lost in the meantime is no reason to give up, unless try is set.
func (k *seeker) acquire(ctx context.Context, try bool) (*Permit, error) {
	for {
		k.candidate = k.candidate.Again()
		t, err := k.contender.acquire(ctx, &k.candidate, k.choose, try, &k.waiting)
		if err != nil {
			return nil, err
		}
		if t == nil { // another process was first at that slot: others may be free
			continue
		}
		p := &Permit{held: k.contender.keep(t, k.waiting.watch), slot: t.Names()[0], quit: k.quit}
		if err = k.agree(ctx, p.held, try); err == nil && p.Token() != 0 {
			context.AfterFunc(t.Context(), k.quit)
			return p, nil
		}
		lost := p.Token() == 0
		go func() {
			if p.held.leave() {
				_ = p.held.giveBack(context.WithoutCancel(ctx), "")
			}
		}()
		switch {
		case ctx.Err() != nil:
			return nil, (&waiting{since: k.waiting.since, last: err}).ended(ctx, k.contender.config.Clock)
		case err == nil:
			err = fmt.Errorf("%w: %w", ErrLost, cmp.Or(context.Cause(t.Context()), elect.ErrExpired))
		}
		if !lost || try {
			return nil, err
		}
	}
}

// choose takes any slot that is free, but for those that others of this process have chosen.
func (k *seeker) choose(seen []elect.Sight) ([]elect.Sight, time.Duration, error) {
	wait := k.contender.config.Lease
	var free []elect.Sight
	for _, o := range seen {
		if o.Free <= 0 {
			free = append(free, o)
			continue
		}
		wait = min(wait, o.Free)
		if o.Confirmed() && o.Promise != nil {
			if err := k.compare([]table.Observation{o.Observation}); err != nil {
				return nil, 0, err
			}
		}
	}
	if chosen, ok := k.pick.from(free, k.contender.config.Clock); ok {
		k.pass()
		return []elect.Sight{chosen}, 0, nil
	}
	if k.turn.Load() {
		return nil, wait, nil
	}
	return nil, 0, errFull
}
