package loop

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Pause makes waiting callers pause when work keeps failing, so that they do not retry it back to back. A caller pauses
// each time it sees that the lock was released and the work was not recorded as done. The first pause is at most an
// eighth of Longest. The limit doubles with each further failure, up to Longest.
//
// A caller does not pause if it arrives after the failure, or if it has waited for a killed holder's lease to expire.
type Pause struct {
	Clock   elect.Clock
	Longest time.Duration // zero: no pause

	asked    time.Time   // when the caller began to wait, by Spanner's clock
	recorded table.Token // the token under which work was last recorded as done
	held     bool        // the lock has been seen to be held since asked
	released time.Time   // when the lock was last released, as far as the caller has seen
	failures int
	pause    elect.Pause
}

// LongestPause returns the longest pause for locks with the given lease.
func LongestPause(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// Asked begins the wait. The arguments are the result of a read: the work that was last recorded as done, and the time
// of the read, by Spanner's clock.
func (p *Pause) Asked(last table.Done, now time.Time) { p.asked, p.recorded = now, last.Token }

// Choose returns a function that decides to claim the lock once the lock is free and the pause has ended. Only then
// does this function call look, which may make an RPC. The results of look are the last completed work and the time of
// the read. If look fails, or forbids returns an error for that work, the function decides not to claim.
func (p *Pause) Choose(look func() (table.Done, time.Time, error), forbids func(table.Done, time.Time) error) elect.Choose {
	return func(seen []elect.LockView) elect.Decision {
		d := elect.All(seen)
		if d.Claim == nil {
			p.held = true
			return d
		}
		if left := p.pause.Left(p.Clock); left > 0 {
			return elect.Decision{Wait: left}
		}
		last, now, err := look()
		if err == nil {
			err = forbids(last, now)
		}
		if err != nil {
			return elect.Decision{Err: err}
		}
		if p.failed(seen[0], last) {
			return elect.Decision{Wait: p.begin()}
		}
		return d
	}
}

// failed reports whether, while this caller waited, a holder gave the lock back without recording the work as done.
func (p *Pause) failed(s elect.LockView, last table.Done) bool {
	given := s.Exists && !s.NotReleased && !s.ReleasedAt().Equal(p.released) && (p.held || s.ReleasedAt().After(p.asked))
	failed := given && last.Token == p.recorded
	p.released, p.recorded = s.ReleasedAt(), last.Token
	if given && !failed {
		p.failures = 0
	}
	return failed && p.Longest > 0
}

// begin starts a pause, and returns its length. Up to half of the length is random, so that the waiters do not all
// continue at the same instant.
func (p *Pause) begin() time.Duration {
	longest := p.Longest / 8 << min(p.failures, 3)
	p.failures++
	length := longest/2 + p.Clock.Random(longest/2+1)
	p.pause = elect.PauseFor(p.Clock, length)
	return length
}
