package elect

import (
	"context"
	"math"
	"time"
)

// signal sends signals to other candidates during the pause before the next look, and returns the rest of the pause.
// While a holder is leaving, the pause is short. Naming a successor may then take up to a tenth of the lease, which is
// how often the other followers look.
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

// succeed names the candidate as the successor of a leaving holder that has none. Without a successor, many followers
// would look for the release and claim the lock, all at the same time. Only candidates of the highest priority do this.
func (c *Candidate) succeed(ctx context.Context, seen []LockView) {
	for _, s := range seen {
		if _, named := s.Successor(); s.Leaving() && !named && c.LeaseRecord.Rank == 0 && c.coolDown.left(c.Clock) <= 0 {
			// If this fails, the other candidates only miss a signal.
			_ = c.try(ctx, func(ctx context.Context) error { return c.Table.Succeed(ctx, c.ID, s.Name, s.Token) })
		}
	}
}

// watch returns the pause before the next look at a lock whose holder is leaving. The holder continues for a third of
// its lease after its announcement. At the instant marked it had not announced yet, so there is nothing to see until a
// third of the lease has passed since then. After that, the successor looks every lease/100. The other followers look
// every lease/10, because the successor may have died, or every lease/50 if there is no successor yet. If the holder
// takes longer than one lease duration, all followers look less and less often.
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
