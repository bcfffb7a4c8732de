package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

var (
	// ErrNotHeld is returned by Unlock and Release if the lock is not held, because it was never acquired, was already
	// released, or has been lost.
	ErrNotHeld = errors.New("not held")

	// ErrHeld is returned by Lock and TryLock if they are called inside a Do that already holds the lock, through this
	// value or a different one. Acquire and TryAcquire return it inside calls of Do that hold every slot. In both
	// cases, the caller would wait for itself.
	ErrHeld = errors.New("already held by the caller's own work")
)

// permanent reports whether err is an error that waiting can't fix.
func permanent(err error) bool {
	return errors.Is(err, errFull) || errors.Is(err, table.ErrDone) || errors.Is(err, ErrPassed) || table.FaultOf(err).Kind == table.Lasting
}

// givesUp reports whether the waiter gives up after a failed attempt, because Spanner keeps refusing its polls or its
// claims.
func (w *waiting) givesUp(step elect.Step) bool {
	if step.Seen == nil {
		return w.patience.Ends("poll", step.Err)
	}
	defer w.patience.Passed("poll") // afterwards, because the claim may be a part of the first attempt
	return w.patience.Ends("claim", step.Err)
}

// waiting is the state of one wait: what the waiter asks for, its place in the queues, and details for the error in
// case ctx ends.
type waiting struct {
	since  elect.Instant
	seen   []elect.LockView
	before int                                // how many waiters were ahead of it in the queue at the last poll
	also   func(seen []elect.LockView) string // describes a poll for that error; nil if there is nothing to add
	last   error
	watch  *telemetry.Watch

	patience elect.Patience

	ticket table.Ticket // the contents of its tickets
	once   string       // the lock whose done row each poll reads
	queue  *queue
	line   *line
	inLine func() bool // reports whether the waiter is first among the goroutines of its process; nil if it always is
}

func (w *waiting) ended(ctx context.Context, c elect.Clock) error {
	why := ended(ctx)
	waited := c.Now().Since(w.since).Round(time.Millisecond)
	by := holders(w.seen)
	if w.also != nil && (by != "" || w.last == nil) {
		by += w.also(w.seen)
	}
	by += w.place()
	if w.last != nil {
		return fmt.Errorf("not acquired in %v: %w%s (last error: %w)", waited, why, by, w.last)
	}
	return fmt.Errorf("not acquired in %v: %w%s", waited, why, by)
}

// place describes, for an error, how many processes were ahead of this one in the queue.
func (w *waiting) place() string {
	switch {
	case w.before == 0:
		return ""
	case w.before == 1:
		return " (another process was ahead of this one in the queue)"
	case w.before < table.MostTickets:
		return fmt.Sprintf(" (%d other processes were ahead of this one in the queue)", w.before)
	}
	return fmt.Sprintf(" (at least %d other processes were ahead of this one in the queue)", w.before)
}

// ended returns ctx's error, together with its cause if that adds information, such as ErrLost in Do.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
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
