// Package repeat computes the pauses before a waiter runs work again that has failed.
package repeat

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Pause keeps waiting callers from running work back to back while it fails. Each time a waiter sees that the lock was
// given back and the work was not recorded as done, it leaves the lock alone for a while. The first pause is an eighth
// of the longest one, and each further pause is twice as long. A caller that arrives after the failure does not pause,
// and neither does one that has waited for the lease of a killed holder to expire.
type Pause struct {
	Clock   elect.Clock
	Longest time.Duration // zero: no pause

	asked    time.Time   // since when the caller waits, by Spanner's clock
	recorded table.Token // the token under which work was last recorded as done
	held     bool        // the lock has been seen to be held since asked
	released time.Time   // when the lock was last released, as far as seen
	failures int
	since    elect.Instant
	left     time.Duration // how long to pause, counted from since
}

// Longest returns the longest pause for locks with that lease.
func Longest(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// Asked begins the wait. The arguments are the work that was done last and the time at which it was read.
func (p *Pause) Asked(last table.Done, now time.Time) { p.asked, p.recorded = now, last.Token }

// Choose returns a function that chooses the lock if it is free and no pause is left, unless forbids returns an error.
// It calls look, which can take an RPC, only if it would otherwise choose the lock.
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

// failed reports whether a holder gave the lock back while this caller waited, without recording the work as done.
func (p *Pause) failed(s elect.LockView, last table.Done) bool {
	given := s.Exists && !s.NotReleased && !s.ReleasedAt().Equal(p.released) && (p.held || s.ReleasedAt().After(p.asked))
	failed := given && last.Token == p.recorded
	p.released, p.recorded = s.ReleasedAt(), last.Token
	if given && !failed {
		p.failures = 0
	}
	return failed && p.Longest > 0
}

// begin starts a pause. Half of it is random, so that the waiters do not all continue at the same instant.
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
