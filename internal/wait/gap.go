package wait

import (
	"math"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/table"
)

// gaps records what a waiter knows about when its locks became free.
type gaps struct {
	freed map[string]since // when each lock was first seen to be free
	ago   time.Duration    // for how long, at most, the locks had been held when other waiters began their pauses
	agoAt time.Time        // the time of the poll that has shown it
}

// since is when a waiter first saw that a lock was free.
type since struct {
	token table.Token
	at    time.Time
	after time.Duration // how long the lock was held before, at most
}

// gap returns how long the waiters in a queue have been able to claim a free lock. If the lock has no row, it is not
// known when the lock became free. The time then counts from when this waiter first found the lock free or from the
// last time at which a waiter ahead wrote its ticket, whichever is earlier. None of the waiters ahead has claimed the
// lock since that ticket was written.
func (g *gaps) gap(q fair.Line, s elect.LockView) fair.Gap {
	gap := fair.Gap{Lasts: g.freeFor(s)}
	gap.After = g.freed[s.Name].after // freeFor has written it
	if before := q.Before(); !s.Exists && len(before) > 0 {
		last := slices.MaxFunc(before, func(a, b table.Ticket) int { return a.Beat.Compare(b.Beat) })
		gap.Lasts = max(gap.Lasts, s.At.Sub(last.Beat))
	}
	return gap
}

// heldFor returns an upper bound on how long a lock was held before it became free. If the lock's rows do not show its
// last term, the result is the longest possible duration. The bound is at least g.ago, because waiters ahead may still
// be in a pause that they began during an earlier, longer term.
func (g *gaps) heldFor(s elect.LockView) time.Duration {
	end := s.Freed
	switch {
	case !s.Exists, s.Heartbeat.IsZero() && end.IsZero():
		return math.MaxInt64
	case !s.Heartbeat.IsZero():
		end = s.At // the lease has expired
	}
	return max(end.Sub(s.Token.Time()), g.ago)
}

// freeFor returns how long a lock has been free. This is the time that the lock's rows show, or the time since this
// waiter first saw the lock free, whichever is longer.
func (g *gaps) freeFor(s elect.LockView) time.Duration {
	known, ok := g.freed[s.Name]
	if !ok || known.token != s.Token {
		known = since{s.Token, s.At, g.heldFor(s)}
		g.freed[s.Name] = known
	}
	return max(s.FreeFor, s.At.Sub(known.at))
}

// lastChange returns how long ago one of the locks last changed hands. If a lock has no row, the time counts from when
// the waiter first found the lock free, because other waiters that have found it free may be about to claim it.
func (g *gaps) lastChange(seen []elect.LockView) time.Duration {
	ago := time.Duration(math.MaxInt64)
	for _, s := range seen {
		since := s.Since()
		if known, ok := g.freed[s.Name]; !s.Exists && ok {
			since = known.at
		}
		ago = min(ago, s.At.Sub(since))
	}
	return ago
}

// paused records how long, at most, the locks had been held when other waiters began their pauses. The argument ago is
// the time since the locks last changed hands, as of a poll at the given time. A longer time from an earlier poll stays
// in effect for twice the sum of the longest pause and the round trip. After a short term, other waiters may still be
// in a pause that began before that term.
func (g *gaps) paused(ago time.Duration, at time.Time, trip time.Duration) {
	if ago >= g.ago || at.Sub(g.agoAt) > 2*(longestPause+trip) {
		g.ago, g.agoAt = ago, at
	}
}
