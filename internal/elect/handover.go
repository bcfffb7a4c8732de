package elect

import (
	"context"
	"math"
	"time"
)

// signal asks for handovers and names a successor during the pause before the next poll. It returns the rest of the
// pause. Because pauses are short while a holder is leaving, naming a successor may take longer than the pause, up to a
// tenth of the lease. That is also the interval at which the other followers poll once there is a successor.
func (c *Candidate) signal(ctx context.Context, seen []LockView, pause time.Duration) time.Duration {
	began := c.Clock.Now()
	within := func(limit time.Duration, send func(context.Context, []LockView)) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		send(ctx, seen)
	}
	within(pause, c.prefer)
	within(max(pause, shortest(c.LeaseRecord.Lease, seen)/10), c.succeed)
	return max(pause-c.Clock.Now().Since(began), 0)
}

// succeed names the candidate as the successor of a leaving holder that has no successor. Without a successor, many
// followers would poll for the release and try to claim the lock at the same time. Only candidates of the highest
// priority become successors.
func (c *Candidate) succeed(ctx context.Context, seen []LockView) {
	for _, s := range seen {
		if _, named := s.Successor(); s.Leaving() && !named && c.LeaseRecord.Rank == 0 && c.restsFor(s.Name) <= 0 {
			// If this fails, the other candidates only miss a signal.
			_ = c.try(ctx, func(ctx context.Context) error { return c.Table.Succeed(ctx, c.ID, s.Name, s.Token) })
		}
	}
}

// watch returns the pause before the next poll of a lock whose holder is leaving, or the longest possible duration if
// there is no such lock.
//
// After its announcement, the holder usually keeps the lock for a third of its lease. No poll is therefore needed until
// a third of the lease has passed since the last poll that did not show the announcement. After that, the successor
// polls every lease/100, and the other followers poll every lease/10 in case the successor has died. If there is no
// successor yet, all followers poll every lease/50. If the holder takes longer than one lease duration, the polls
// become less and less frequent.
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
