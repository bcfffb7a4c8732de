package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

var (
	// ErrNotHeld is returned by Unlock, Release and Do if the lock is not held, because it was never acquired, was
	// already released, or has been lost.
	ErrNotHeld = errors.New("not held")

	// ErrHeld is returned by Lock and TryLock if they are called inside a Do that already holds the lock, through this
	// value or a different one. They also return it inside a Do that has lost the lock. Acquire and TryAcquire return
	// ErrHeld inside calls of Do that hold every slot. In each case, the caller would wait for itself.
	ErrHeld = errors.New("already held by the caller's own work")
)

// permanent reports whether err is an error that waiting can't fix.
func permanent(err error) bool {
	return errors.Is(err, errFull) || errors.Is(err, table.ErrDone) || errors.Is(err, ErrPassed) || table.FaultOf(err).Kind == table.Lasting
}

// ended returns the error of a wait that has ended because ctx ended.
func (w *waiter) ended(ctx context.Context) error {
	f := w.found.Load()
	if f == nil {
		f = &found{}
	}
	waited := w.config.Clock.Now().Since(w.since).Round(time.Millisecond)
	if f.last != nil {
		return fmt.Errorf("not acquired in %v: %w%s (last error: %w)", waited, table.Ended(ctx), w.by(), f.last)
	}
	return fmt.Errorf("not acquired in %v: %w%s", waited, table.Ended(ctx), w.by())
}

// by returns text for an error. It says what is in the way: the holders, and how many processes were ahead of this one.
func (w *waiter) by() string {
	f := w.found.Load()
	if f == nil {
		return w.inProcess()
	}
	by := holders(f.seen)
	if w.also != nil && (by != "" || f.last == nil) {
		by += w.also(f.seen)
	}
	switch {
	case f.before == 0:
		return by
	case f.before == 1:
		return by + " (another process was ahead of this one in the queue)"
	case f.before < table.MostTickets:
		return by + fmt.Sprintf(" (%d other processes were ahead of this one in the queue)", f.before)
	}
	return by + fmt.Sprintf(" (at least %d other processes were ahead of this one in the queue)", f.before)
}

// inProcess returns text for an error. It says which goroutine of this process is in the way.
func (w *waiter) inProcess() string {
	h := w.queue.holds.Load()
	switch {
	case h == nil && w.queue.isTaken():
		return " (another goroutine of this process is ahead of this one in the queue)"
	case h == nil: // it wants a slot, and does not queue
		return ""
	}
	what, how := "held", "by another value in this process under token %v; unlock that value first, or return from its Do"
	if h.isLost() {
		what = "lost, but not yet unlocked,"
	}
	switch garbage := h.by.garbage; {
	case garbage == w.garbage:
		how = "by this same value under token %v; unlock it first, or wait until its Do has returned"
	case garbage.Load():
		how = "under token %v by a value in this process that was never unlocked and is garbage now; release the lock with spindle release, or restart the process"
	}
	return fmt.Sprintf(" (%s "+how+"; it was locked %v ago, at %s)", what, h.term.Token(), h.age(), h.by.caller())
}

func holders(seen []elect.LockView) string {
	var by []string
	for _, s := range seen {
		if s.FreeIn > 0 && s.Exists && !s.Heartbeat.IsZero() {
			by = append(by, fmt.Sprintf("%q by %s under token %d, last heartbeat %v ago",
				s.Name, holder(s.Observation), s.Token, s.At.Sub(s.Heartbeat).Round(time.Millisecond)))
		}
	}
	if by == nil {
		return ""
	}
	return " (held: " + strings.Join(by, "; ") + ")"
}

// holder returns the holder's id in quotes, because the table may contain an id that New would refuse.
func holder(o table.Observation) string {
	if id := o.Holder(); id != "" {
		return fmt.Sprintf("%q", id)
	}
	return "a holder that is leaving"
}
