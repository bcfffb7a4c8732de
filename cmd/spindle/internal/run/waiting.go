package run

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/wait"
)

// waits is the state of a command's wait for the lock, in the lock's queue or on standby. While a goroutine competes
// for the lock, only that goroutine may use waits. Afterwards, the main loop may use it.
type waits struct {
	config    options.Config
	candidate elect.Candidate
	slots     wait.Slots  // without Names unless the command waits for a slot
	queues    bool        // the command waits in the queue
	nonce     string      // of its tickets
	place     *wait.Place // nil on standby
	follower  wait.Follower
	lastOwn   table.Token // the token of its last term
}

// sized reports whether the command waits for a slot of a semaphore.
func (w *waits) sized() bool { return w.slots.Names != nil }

// usable returns the locks that this process can acquire. For a semaphore, these are only the slots that all holders
// know.
func (w *waits) usable(seen []elect.LockView) []elect.LockView {
	if w.sized() && seen != nil {
		return seen[:w.slots.Common(seen)]
	}
	return seen
}

// joins sets what the command waits for: one of n slots, or a lock if n is zero.
func (r *reports) joins(n int, queues bool) {
	if r.queues = queues || n > 0; n == 0 { // for a slot, even --try reads the queue
		return
	}
	r.slots = wait.NewSlots(r.name, n, func(o table.Observation) {
		r.complainOf("%s gives this semaphore size %d, but this process gives it size %d; until that process releases its slot, this one acquires only slots within both sizes; use the same size in all processes", terminal.Show(o.Holder()), o.LeaseRecord.Slots, n)
	})
	r.candidate.Names = r.slots.Names
	r.candidate.LeaseRecord.Slots, r.candidate.LeaseRecord.Kind = n, table.Semaphore
}

// settle releases the slot that a step has acquired, unless all holders know the slot (see wait.Slots.IsKnown). It
// tries for at most half a lease to find this out, because heartbeats begin only afterwards.
func (x *execution) settle(ctx context.Context, step elect.Step) elect.Step {
	limited, cancel := context.WithTimeout(ctx, x.lease/2)
	defer cancel()
	slot := step.Term.Names()[0]
	var known bool
	var err error
	_ = elect.Insist(limited, x.candidate.Clock, x.lease, func(ctx context.Context) error {
		if known, err = x.waits.slots.IsKnown(ctx, x.candidate.Table, slot); x.atOnce || errors.Is(err, table.ErrNewer) {
			return nil
		}
		return err
	})
	if known {
		return step
	}
	book := x.book(step.Term)
	if err := step.Term.Release(context.WithoutCancel(ctx), errGivenUp); err != nil {
		x.complain("%s could not be released, so it may stay held until its lease has expired: %v", slot, x.Explain(err))
	}
	book.Free(false)
	x.leave(ctx, true)
	x.join() // the claim has deleted the ticket
	if err != nil {
		return elect.Step{Err: err, Pause: x.lease / 10}
	}
	return elect.Step{Lost: true}
}

// join begins a wait.
func (w *waits) join() {
	w.place, w.follower = nil, wait.Follower{Config: &w.config, Ear: w.config.Ear()}
	if !w.queues {
		return
	}
	if w.nonce == "" {
		w.nonce = wait.Nonce(w.config.Clock)
	}
	queue := w.candidate.Names[0]
	if w.sized() {
		queue = wait.SlotQueue(w.slots.Name)
	}
	place := wait.New(&w.config, w.candidate.Table, queue)
	place.Ticket.Slots = len(w.slots.Names)
	place.Ear = w.follower.Ear
	w.place, w.candidate.Queue = &place, &place
}

// claims returns the function that decides whether to claim the lock.
func (w *waits) claims() elect.Choose {
	switch {
	case w.sized():
		return func(seen []elect.LockView) elect.Decision {
			return w.slots.Pick(w.place, w.slots.Free(w.place, seen), seen)
		}
	case w.place != nil:
		return w.place.InOrder(elect.All)
	}
	return elect.All
}

// attend joins the queue after a poll, or keeps its place in the queue. A command that is cooling down, for example
// after a handover, does not queue yet.
func (w *waits) attend(ctx context.Context, step elect.Step) error {
	if w.place == nil || step.Seen == nil || step.Err != nil || step.CoolingDown {
		return nil
	}
	p, attended := w.place, make(chan error, 1)
	if !soon(ctx, w.config.Lease, func() { attended <- p.Attend(ctx, w.nonce, step.Seen) }) {
		w.place = nil // still in use
		return nil
	}
	return <-attended
}

// rest waits until the next poll is due, after a step that began at the given time.
func (w *waits) rest(ctx context.Context, step elect.Step, began elect.Instant) {
	switch {
	case w.place == nil:
		w.follower.Rest(ctx, step, began, w.lastOwn)
	case step.Seen != nil && step.Err == nil:
		w.place.Rest(ctx, step)
	default:
		elect.Sleep(ctx, w.config.Clock, step.Pause)
	}
}

// leave ends the wait. If the command has not acquired the lock, leave also frees a claim whose reply was lost, and
// deletes the command's ticket. Once ctx has ended, it does not wait long for that.
func (w *waits) leave(ctx context.Context, won bool) {
	w.follower.Ear.Close()
	if won {
		return
	}
	candidate, place := w.candidate.Again(), w.place // a copy, because the command may compete again meanwhile
	soon(ctx, w.config.Lease, func() {
		candidate.Abandon()
		if place != nil && place.Own.Nonce != "" {
			place.Forget()
		}
	})
}

// book returns a new notify.Book for a term, with the waiters to tell when its lock is released.
func (w *waits) book(t *elect.Term) notify.Book {
	if w.place != nil {
		return w.place.Book(t)
	}
	return w.config.Book(t, notify.Term{Name: t.Names()[0]})
}

// soon runs f, and returns true when f has returned. Once ctx has ended, it waits for at most wait.LongestForget, and
// then returns false while f continues.
func soon(ctx context.Context, lease time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	limit := time.NewTimer(wait.LongestForget(lease))
	defer limit.Stop()
	select {
	case <-done:
		return true
	case <-limit.C:
		return false
	}
}
