package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// preference is what a candidate remembers about candidates of other priorities.
type preference struct {
	well  Instant     // since when all the candidate's polls have succeeded
	sick  bool        // the last poll failed
	asked table.Token // the last term whose holder the candidate asked for a handover

	spurned  bool          // it yielded to a preference, and has not seen a higher priority keep the lock since
	ignoring time.Duration // how long a new term ignores preferences
}

const longestIgnore = time.Hour

func (p *preference) looked(now Instant, err error) {
	if err != nil || p.sick || p.well == (Instant{}) {
		p.well, p.sick = now, err != nil
	}
}

// known is how many lease durations a candidate of higher priority needs to prove itself. Such a candidate asks for a
// handover only after it has polled successfully for that long. A holder that ignores such requests accepts them again
// only after a candidate of higher priority has held the lock for that long. A candidate that can't keep the lock never
// holds it for that long, even if its last heartbeats commit late.
const known = 3

// see makes the candidate accept preferences again if o shows that a candidate of higher priority has held the lock for
// three lease durations. rank is the candidate's own rank. A holder of the same priority proves nothing about
// candidates of higher priority.
func (p *preference) see(o table.Observation, rank int) {
	if o.LeaseRecord != nil && o.LeaseRecord.Rank < rank && o.Heartbeat.Sub(o.Token.Time()) >= known*o.LeaseRecord.Lease {
		p.spurned, p.ignoring = false, 0
	}
}

// ignoreFor returns how long a new term ignores preferences, which are handover requests from candidates of higher
// priority. Such a candidate might be able to poll and ask, but not to hold the lock. If the holder never ignored its
// requests, it would yield, win the lock back, and yield again, forever.
func (p *preference) ignoreFor(lease time.Duration) time.Duration {
	if p.spurned {
		p.ignoring = min(max(2*p.ignoring, 10*lease), max(longestIgnore, 10*lease))
	}
	p.spurned = false
	return p.ignoring
}

// prefer asks a holder of lower priority to hand the lock over, once per term. The candidate must first poll
// successfully for three lease durations. If it has led before, only the time since its last term counts. If the reply
// to the request is lost, the candidate asks again at its next poll.
func (c *Candidate) prefer(ctx context.Context, seen []LockView) {
	p := &c.preference
	if p.sick || c.Clock.Now().Since(p.well) < known*c.LeaseRecord.Lease {
		return
	}
	for _, s := range seen {
		if s.FreeIn <= 0 || s.LeaseRecord == nil || !s.LeaseRecord.AcceptsHandover || s.LeaseRecord.Rank <= c.LeaseRecord.Rank || s.Leaving() || p.asked == s.Token {
			continue
		}
		err := c.try(ctx, func(ctx context.Context) error { return c.Table.Ask(ctx, table.ByPreference, s.Name, s.Token) })
		if err == nil || errors.Is(err, table.ErrSuperseded) {
			p.asked = s.Token
		}
	}
}
