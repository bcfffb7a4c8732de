package wait

import (
	"context"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// Follower waits for an elector's lock without a place in a queue. Without an Ear, it only polls.
type Follower struct {
	Config *options.Config
	Ear    *notify.Ear
}

// Rest waits until the next poll is due, after a step whose poll began at the given time. The argument last is the
// token of the candidate's own last term. While messages say that the leader is alive, a follower without WithPoll
// polls only every 0.8 to 0.9 leases or, if that is sooner, when the lock can become free.
func (f *Follower) Rest(ctx context.Context, step elect.Step, began elect.Instant, last table.Token) {
	c, long := f.Config, step.Pause
	if step.Seen != nil {
		f.learn(step, began, last)
	}
	if c.Poll == 0 && step.Err == nil && !step.Lost && !step.CoolingDown {
		lease := c.Lease
		if len(step.Seen) > 0 && step.Seen[0].LeaseRecord != nil {
			lease = min(lease, step.Seen[0].LeaseRecord.Lease)
		}
		long = min(lease*9/10-c.Clock.Random(lease/10+1), step.Latest)
	}
	f.Ear.Sleep(ctx, c.Clock, step.Pause, long)
}

// learn tells the Ear what a poll has shown. While the candidate is cooling down, it gives itself the lowest rank, so
// that the holder tells other candidates first.
func (f *Follower) learn(step elect.Step, began elect.Instant, last table.Token) {
	if f.Ear == nil {
		return
	}
	s, rank := step.Seen[0], f.Config.Rank
	if step.CoolingDown {
		rank = table.MaxRank
	}
	seen := lockOf(s)
	seen.Held, seen.Leaving = seen.Held && s.Token != last, s.Leaving()
	f.Ear.Learn(notify.Seen{Locks: []notify.Lock{seen}, Follower: true, Rank: rank, Trip: f.Config.Clock.Now().Ran(began)}, began)
}

// lockOf returns what a poll tells an Ear about a lock.
func lockOf(s elect.LockView) notify.Lock {
	l := notify.Lock{Name: s.Name, Token: s.Token, Held: s.FreeIn > 0 && s.LeaseRecord != nil}
	if l.Held {
		l.Contact, l.Lease = s.LeaseRecord.Notify, s.LeaseRecord.Lease
	}
	return l
}
