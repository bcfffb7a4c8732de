package lock

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
	"github.com/spindle-lock/spindle/internal/wait"
)

// waiter is one call that waits for locks. Until it has the locks, only the goroutine started by its wait method may
// use the waiter. After that, only the caller that releases the locks may use it. Other goroutines may read its atomic
// fields.
type waiter struct {
	line
	place
	choose   elect.Choose
	also     func(seen []elect.LockView) string // describes a poll for the error; nil if there is nothing to add
	try      bool                               // the call must not wait
	since    elect.Instant
	patience *elect.Patience
	found    atomic.Pointer[found] // nil at first, and while other goroutines of its process are ahead of it
	inTable  atomic.Bool           // its process may have a ticket
	callers  []uintptr             // the stack when the call began to wait (see caller)
	garbage  *atomic.Bool          // set when the value that the call locks has become garbage
	abandon  func()                // frees a claim whose reply was lost (see elect.Candidate)
}

// line contains what a waiter needs to queue with other processes.
type line struct {
	*contender
	wait.Place
	watch *telemetry.Watch
}

// place contains what a waiter needs to queue with other goroutines of its process.
type place struct {
	queue *queue
	front bool      // the goroutine is at the front
	left  sync.Once // guards the departure
}

// found is what a waiter has learned, for the error if ctx ends.
type found struct {
	seen   []elect.LockView
	before int   // how many waiters were ahead of it in the queue at the last poll
	last   error // why its last attempt failed
}

// waiter returns a waiter for locks with the given queues.
func (s *contender) waiter(try bool, garbage *atomic.Bool, queues ...string) *waiter {
	w := &waiter{place: place{queue: join(s.queue())}, choose: elect.All, try: try, since: s.config.Clock.Now(), patience: s.patience(), garbage: garbage, abandon: func() {}}
	w.callers = make([]uintptr, 16)
	w.callers = w.callers[:runtime.Callers(2, w.callers)]
	w.contender, w.watch = s, s.about.Watch()
	w.Place = wait.New(&s.config, w.watch.Table(s.table), queues...)
	w.Queued = w.watch.Queued
	if !try { // a call that must not wait needs no messages, and has no time to leave the lock to others
		w.Ear = s.config.Ear()
	}
	return w
}

// wait runs compete in a new goroutine. If ctx ends, that goroutine still releases any locks that it has claimed, frees
// a claim whose reply was lost, leaves the process's queue, and deletes its tickets. The program may exit once
// wait has returned. Therefore, wait first gives the goroutine time to delete the tickets: at most a tenth of the lease
// or 500 ms, whichever is shorter. If the last request failed, wait returns immediately.
func (w *waiter) wait(ctx context.Context, compete func(context.Context) (*held, error)) (*held, error) {
	type result struct {
		*held
		err error
	}
	results, abandoned, done := make(chan result), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		h, err := compete(ctx)
		w.watch.Close()
		if h == nil {
			w.abandon() // before the next goroutine of its process claims, because both claim under the same id
			w.leave()   // before the call returns, so that it is not in the way of the process's next call
		}
		select {
		case results <- result{h, err}:
		case <-abandoned:
			if h != nil {
				_ = h.unlock(context.WithoutCancel(ctx))
			}
		}
		if h == nil {
			w.Forget()
		}
	}()
	var r result
	select {
	case r = <-results:
	case <-ctx.Done():
		close(abandoned)
		r.err = w.ended(ctx)
	}
	f := w.found.Load()
	failed := f != nil && f.last != nil || table.Refused(r.err)
	if r.held == nil && !failed && (f == nil || w.inTable.Load()) {
		t := w.config.Clock.Timer(wait.LongestForget(w.config.Lease))
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
		}
	}
	return r.held, r.err
}

// enter waits until the goroutine is at the front of its process's queue, and takes over the ticket of the process. It
// returns false if ctx ends first, or if try is set and it would have to wait.
func (w *waiter) enter(ctx context.Context) bool {
	w.found.Store(nil)
	if h := w.queue.holds.Load(); h != nil {
		h.wanted()
	}
	w.OwnTicket, w.front = w.queue.enter(ctx, w.try)
	w.inTable.Store(w.Own.Nonce != "")
	if w.front {
		w.note(found{})
	}
	return w.front
}

// pass makes way for the next goroutine of the process, which takes over the ticket.
func (w *waiter) pass() {
	if !w.front {
		return
	}
	if w.queue.next(w.OwnTicket) {
		w.OwnTicket = wait.OwnTicket{}
	}
	w.front = false
}

// leave makes the waiter leave its process's queue. Only the first call has an effect. If the waiter still has a ticket
// afterwards, no other goroutine of the process was waiting to take it over.
func (w *waiter) leave() {
	w.left.Do(func() {
		w.pass()
		w.queue.leave(w)
	})
}

// lock acquires the locks. The caller stays at the front of its process's queue until it unlocks them.
func (w *waiter) lock(ctx context.Context) (*held, error) {
	if !w.enter(ctx) {
		if w.try {
			return nil, nil
		}
		return nil, w.ended(ctx)
	}
	w.patience = w.queue.share(w.patience)
	w.choose = w.InOrder(w.choose)
	c := w.candidate(w.Queues...)
	term, err := w.acquire(ctx, &c)
	if term == nil {
		return nil, err
	}
	h := w.keep(term)
	w.queue.holds.Store(h)
	return h, nil
}

// candidate returns a candidate for the named locks. Its polls also read the queues. FreeRows is set to save requests,
// because these locks change hands often.
func (w *waiter) candidate(names ...string) elect.Candidate {
	c := w.config.Candidate(w.Table, names...)
	c.Queue, c.FreeRows, c.LeaseRecord.Kind = &w.Place, true, table.Mutex
	return c
}

// acquire polls the locks until it can claim the ones that w.choose selects. w.choose must select nothing while other
// waiters are ahead.
//
// If try is set, acquire does not wait: it returns no term if the locks are held or other waiters are ahead. It polls
// again only if its claim was lost or aborted, because Spanner may abort a claim on a free lock. If try is not set, a
// waiter at the front of its process's queue puts a ticket into the locks' queues, unless the process already has one.
func (w *waiter) acquire(ctx context.Context, c *elect.Candidate) (*elect.Term, error) {
	defer w.Ear.Close()
	w.abandon = c.Abandon
	var f found
	for ctx.Err() == nil {
		step := c.Try(ctx, w.choose, wait.MaxPause(&w.config))
		w.watch.Tried(step)
		if step.Err == nil {
			w.patience.Passed("poll")
		}
		if step.Term != nil {
			w.patience.Passed("claim")
			w.Own = table.Ticket{} // the claim has deleted it
			w.inTable.Store(false)
			if ctx.Err() == nil {
				return step.Term, nil
			}
			_ = w.release(context.WithoutCancel(ctx), step.Term, table.Due{})
			break
		}
		byNewer := w.heldByNewer(step.Err)
		if step.Seen != nil || byNewer {
			f.seen, f.before = step.Seen, w.Ahead()
		}
		switch {
		case elect.IsOver(ctx): // no failure of Spanner; the error is made below
		case step.Err != nil && !byNewer && (w.try || permanent(step.Err) || w.givesUp(step)):
			return nil, step.Err
		case !step.CoolingDown:
			f.last = step.Err
		}
		w.note(f)
		if w.try && !step.Lost && !elect.IsOver(ctx) {
			return nil, nil
		}
		if step.Seen != nil && step.Err == nil && !w.try {
			if err := w.attend(ctx, step.Seen); err != nil && ctx.Err() == nil {
				if w.patience.Ends("ticket", err) {
					return nil, err
				}
				f.last = err
				w.note(f)
			}
			w.Rest(ctx, step)
			continue
		}
		elect.Sleep(ctx, w.config.Clock, step.Pause)
	}
	return nil, w.ended(ctx)
}

func (w *waiter) note(f found) { w.found.Store(&f) }

// attend updates the process's tickets in the queues. It does nothing unless the waiter is at the front of its
// process's queue. If attend fails, the waiter tries again after the next poll, unless it gives up.
func (w *waiter) attend(ctx context.Context, seen []elect.LockView) error {
	if !w.front {
		return nil
	}
	w.inTable.Store(true)
	err := w.Attend(ctx, w.queue.id(w.config.Clock), seen)
	if err == nil {
		w.patience.Passed("ticket")
	}
	return err
}

// givesUp reports whether the waiter gives up after a failed attempt, because Spanner keeps refusing its polls or its
// claims.
func (w *waiter) givesUp(step elect.Step) bool {
	if step.Seen == nil {
		return w.patience.Ends("poll", step.Err)
	}
	defer w.patience.Passed("poll") // afterwards, because the claim may be part of the first attempt
	return w.patience.Ends("claim", step.Err)
}
