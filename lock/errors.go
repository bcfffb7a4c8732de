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
	// ErrNotHeld is returned by Unlock and Release if the lock is not held: it was never taken, was already given back,
	// or was lost meanwhile.
	ErrNotHeld = errors.New("not held")

	// ErrHeld is returned by Lock and TryLock if the work of ctx, in Do, holds the lock itself, by this value or
	// another; and by Acquire and TryAcquire if it holds every slot. They would wait for themselves.
	ErrHeld = errors.New("already held by the work that asks for it")
)

// permanent reports whether waiting can't mend err.
func permanent(err error) bool {
	return errors.Is(err, errFull) || errors.Is(err, table.ErrDone) || errors.Is(err, ErrPassed) || elect.Lasting(err)
}

// waiting is one wait: what it asks for, where it stands in the queues, and what its error says if ctx ends it.
type waiting struct {
	since  elect.Instant
	seen   []elect.LockView
	before int                                // in the queue, when it looked last
	also   func(seen []elect.LockView) string // adds to that error what a look shows, or nil
	last   error
	watch  *telemetry.Watch
	ticket table.Ticket // what its tickets say
	beside []string     // further rows that it reads
	queue  *queue
	line   *line
	inLine func() bool // reports whether it has the turn in its process; nil: it has
}

func (w *waiting) ended(ctx context.Context, c elect.Clock) error {
	why := ended(ctx)
	waited := c.Now().Since(w.since).Round(time.Millisecond)
	by := holders(w.seen)
	if by == "" && w.last != nil {
		return fmt.Errorf("not acquired in %v: %w (last: %w)", waited, why, w.last)
	}
	if w.also != nil {
		by += w.also(w.seen)
	}
	by += w.place()
	return fmt.Errorf("not acquired in %v: %w%s", waited, why, by)
}

// place returns how many were before it in the queue, for an error.
func (w *waiting) place() string {
	switch {
	case w.before == 0:
		return ""
	case w.before == 1:
		return " (another process was before this one in the queue)"
	case w.before < table.MostTickets:
		return fmt.Sprintf(" (%d other processes were before this one in the queue)", w.before)
	}
	return fmt.Sprintf(" (at least %d other processes were before this one in the queue)", w.before)
}

// ended returns ctx's error, with the cause if that says more, such as ErrLost in Do.
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
			by = append(by, fmt.Sprintf("%q by %s under token %d, last heartbeat %v before",
				s.Name, holder(s.Observation), s.Token, s.At.Sub(s.Heartbeat).Round(time.Millisecond)))
		}
	}
	if by == nil {
		return ""
	}
	return " (held: " + strings.Join(by, "; ") + ")"
}

// holder is quoted: the table may have an id that New would refuse.
func holder(o table.Observation) string {
	if id := o.Holder(); id != "" {
		return fmt.Sprintf("%q", id)
	}
	return "a holder that is leaving"
}
