// Package repeat has the pause before a waiter runs failed work again.
package repeat

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Pause keeps waiting callers from running work back to back while it fails. Each time a waiter sees that the lock was
// given back and that nothing was recorded, it leaves the lock alone for a while: an eighth of the longest pause at
// first, then twice as long each time. A caller that comes after the failure does not pause, nor does one that has
// waited for the lease of a killed holder.
type Pause struct {
	Clock   elect.Clock
	Longest time.Duration // zero: no pause

	asked    time.Time   // since when it waits, by Spanner's clock
	recorded table.Token // of what was done last
	held     bool        // the lock was seen to be held since
	released time.Time   // when the lock was released last, as far as seen
	failures int
	since    elect.Instant
	left     time.Duration // counted from since
}

// Longest returns the longest pause of locks with that lease.
func Longest(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// Asked begins the wait, with what was done last and the time of that look.
func (p *Pause) Asked(last table.Done, now time.Time) { p.asked, p.recorded = now, last.Token }

// Choose chooses the lock if it is free and no pause is left, unless what was done last forbids it. To look at that is
// an RPC.
func (p *Pause) Choose(look func() (table.Done, time.Time, error), forbids func(table.Done, time.Time) error) elect.Choose {
	return func(seen []elect.LockView) elect.Decision {
		d := elect.All(seen)
		if d.Claims() == nil {
			p.held = true
			return d
		}
		if left := p.remains(); left > 0 {
			return elect.Wait(left)
		}
		last, now, err := look()
		if err == nil {
			err = forbids(last, now)
		}
		if err != nil {
			return elect.Blocked(err)
		}
		if p.failed(seen[0], last) {
			p.begin()
			return elect.Wait(p.left)
		}
		return d
	}
}

// failed reports whether a holder gave the lock back while this one waited, and recorded nothing.
func (p *Pause) failed(s elect.LockView, last table.Done) bool {
	given := s.Exists && !s.NotReleased && !s.ReleasedAt().Equal(p.released) && (p.held || s.ReleasedAt().After(p.asked))
	failed := given && last.Token == p.recorded
	p.released, p.recorded = s.ReleasedAt(), last.Token
	if given && !failed {
		p.failures = 0
	}
	return failed && p.Longest > 0
}

// begin begins a pause. Half of it is random, so that the waiters don't all continue at one instant.
func (p *Pause) begin() {
	pause := p.Longest / 8 << min(p.failures, 3)
	p.failures++
	p.since, p.left = p.Clock.Now(), pause/2+p.Clock.Random(pause/2+1)
}

func (p *Pause) remains() time.Duration {
	if p.left == 0 {
		return 0
	}
	return p.left - p.Clock.Now().Since(p.since)
}
