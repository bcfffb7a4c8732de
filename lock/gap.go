package lock

import (
	"math"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/table"
)

// since is when a waiter first saw that a lock is free.
type since struct {
	token table.Token
	at    time.Time
	after time.Duration // how long the lock was held before, at most
}

// gap returns since when the waiters in a queue have been able to claim a free lock. If the lock has no row, it is not
// known when the lock became free. The time then counts from when the last of the waiters ahead arrived, because none
// of them has claimed the lock since.
func (l *line) gap(q fair.Line, s elect.LockView) fair.Gap {
	g := fair.Gap{Lasts: l.freeFor(s), After: l.free[s.Name].after}
	if before := q.Before(); !s.Exists && len(before) > 0 {
		last := slices.MaxFunc(before, func(a, b table.Ticket) int { return a.Beat.Compare(b.Beat) })
		g.Lasts = max(g.Lasts, s.At.Sub(last.Beat))
	}
	return g
}

// heldFor returns how long a free lock was held before, at most: its rows have the start and the end of its last term.
// Waiters ahead may still be in a pause that they began in an earlier and longer term, as this one was not long ago.
func (l *line) heldFor(s elect.LockView) time.Duration {
	end := s.Freed
	switch {
	case !s.Exists, s.Heartbeat.IsZero() && end.IsZero():
		return math.MaxInt64
	case !s.Heartbeat.IsZero():
		end = s.At // the lease has expired
	}
	return max(end.Sub(s.Token.Time()), l.ago)
}

// freeFor returns how long a lock has been free. This is the time that the lock's rows show, or the time since this
// waiter first saw the lock free, whichever is longer.
func (l *line) freeFor(s elect.LockView) time.Duration {
	known, ok := l.free[s.Name]
	if !ok || known.token != s.Token {
		known = since{s.Token, s.At, l.heldFor(s)}
		l.free[s.Name] = known
	}
	return max(s.FreeFor, s.At.Sub(known.at))
}

// lastChange returns how long ago one of the locks last changed hands. For a lock without a row, this is when the waiter first
// saw that: others that saw it, too, are about to claim the lock.
func (l *line) lastChange(seen []elect.LockView) time.Duration {
	ago := time.Duration(math.MaxInt64)
	for _, s := range seen {
		since := s.Since()
		if known, ok := l.free[s.Name]; !s.Exists && ok {
			since = known.at
		}
		ago = min(ago, s.At.Sub(since))
	}
	return ago
}
