package elect

import (
	"context"
	"math"
	"time"
)

// signal sends signals to other candidates in the pause until its next look, and returns the rest of the pause. While a
// holder is leaving the pause is short: naming a successor gets a tenth of the lease, which is how often the others
// look then.
func (c *Candidate) signal(ctx context.Context, seen []LockView, pause time.Duration) time.Duration {
	began := c.Clock.Now()
	within := func(limit time.Duration, send func(context.Context, []LockView)) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		send(ctx, seen)
	}
	within(pause, c.prefer)
	within(max(pause, c.shortest(seen)/10), c.succeed)
	return max(pause-c.Clock.Now().Since(began), 0)
}

// succeed names the candidate as the successor of a leaving holder that has none. Otherwise a crowd of followers would
// all look for the release, and claim the lock, at once. Lower priorities leave that to higher ones.
func (c *Candidate) succeed(ctx context.Context, seen []LockView) {
	for _, s := range seen {
		if _, named := s.Successor(); s.Leaving() && !named && c.LeaseRecord.Rank == 0 && c.coolDown.left(c.Clock) <= 0 {
			// If that fails, the others only miss a signal.
			_ = c.try(ctx, func(ctx context.Context) error { return c.Table.Succeed(ctx, c.ID, s.Name, s.Token) })
		}
	}
}

// watch returns the pause before the next look at a lock whose holder is leaving. The holder continues for a third of
// its lease after its announcement. At marked it had not announced yet: before a third has passed since then, there is
// nothing to see. Then the successor looks every lease/100, or everybody every lease/50 if there is none yet; the
// others look every lease/10, because the successor may be gone. If the holder takes longer than a lease, all look ever less often.
func (c *Candidate) watch(seen []LockView) time.Duration {
	pause := time.Duration(math.MaxInt64)
	for _, s := range seen {
		if !s.Leaving() || s.LeaseRecord == nil {
			continue
		}
		lease, since := s.LeaseRecord.Lease, c.Clock.Now().Since(c.observer.history(s.Name).marked)
		every := lease / 50
		if id, named := s.Successor(); named && id == c.ID {
			every = lease / 100
		} else if named {
			every = lease / 10
		}
		if since > lease {
			every = max(every, since/20)
		}
		pause = min(pause, max(Jitter(c.Clock, every), lease/3-since))
	}
	return pause
}
