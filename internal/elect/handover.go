package elect

import (
	"context"
	"math"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Yield makes the candidate leave the lock, of a term that it gave up, to others: until another holds it, or
// a third of a lease has passed since it was released, or a lease, if it is not known to be released. Asked is
// the request that it has accepted, or "".
func (c *Candidate) Yield(t *Term, released bool, asked table.Request) {
	c.yielded, c.coolingSince, c.coolDown = t.token, c.Clock.Now(), c.LeaseRecord.Lease
	if released {
		c.coolDown /= 3
	}
	c.preference.spurned = asked == table.ByPreference
}

// recognise takes in what was observed of handovers.
func (c *Candidate) recognise(o table.Observation, h *lockHistory, began Instant) {
	if o.Leaving() && h.leaving != o.Token {
		h.leaving, h.marked = o.Token, h.looked
		if h.looked == (Instant{}) {
			h.marked = began
		}
	}
	h.looked = began
	if !o.Confirmed() || o.Token == c.own {
		return
	}
	if c.yielded != 0 {
		c.yielded, c.coolDown = 0, 0
	}
	c.preference.see(o, c.LeaseRecord.Rank)
}

// signal tells others of the candidate, in the pause until its next look, and returns what is left of that. While a
// holder is leaving the pause is short: a name gets a tenth of the lease, which is how often the others look then.
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

// succeed names the candidate as the successor of a leaving holder that has none, so that a crowd of followers
// does not look for the release, and claim the lock, all at once. Lower priorities leave that to higher ones.
func (c *Candidate) succeed(ctx context.Context, seen []LockView) {
	for _, s := range seen {
		if _, named := s.Successor(); s.Leaving() && !named && c.LeaseRecord.Rank == 0 && c.coolDownLeft() <= 0 {
			// What fails is only a signal that the others don't get.
			_ = c.try(ctx, func(ctx context.Context) error { return c.Table.Succeed(ctx, c.ID, s.Name, s.Token) })
		}
	}
}

// watch is the pause before the next look at a lock whose holder is leaving. It goes on for a third of its lease
// after it has said so, and had not said so yet at marked: before a third has passed since then, there is nothing
// to see. Then the successor looks each hundredth of the lease, or everybody each fiftieth if there is none yet; the
// others look each tenth, as the successor may be gone. If the holder takes longer than a lease, so do all.
func (c *Candidate) watch(seen []LockView) time.Duration {
	pause := time.Duration(math.MaxInt64)
	for _, s := range seen {
		if !s.Leaving() || s.LeaseRecord == nil {
			continue
		}
		lease, since := s.LeaseRecord.Lease, c.Clock.Now().Since(c.history(s.Name).marked)
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
