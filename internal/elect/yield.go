package elect

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Pause is a time during which something is left alone. The zero Pause has ended.
type Pause struct {
	since  Instant
	length time.Duration
}

// PauseFor returns a pause of that length, which begins now.
func PauseFor(c Clock, length time.Duration) Pause { return Pause{c.Now(), length} }

// Left returns how much longer the pause lasts. The result is zero or negative if it has ended.
func (p Pause) Left(c Clock) time.Duration {
	if p.length == 0 {
		return 0
	}
	return p.length - c.Now().Since(p.since)
}

// Yield keeps the candidate from claiming a lock that it has just given up. This cool-down ends when a poll finds that
// another candidate holds the lock, or after a time limit. The limit is a third of the lease if the lock is known to
// have been released, and one lease duration otherwise. The argument asked is the handover request that the candidate
// accepted, or "" if there was none.
func (c *Candidate) Yield(released bool, asked table.Request) {
	length := c.LeaseRecord.Lease
	if released {
		length /= 3
	}
	c.coolDown, c.yielded = PauseFor(c.Clock, length), true
	c.preference.spurned = asked == table.ByPreference
}

// yieldedTo is called when another candidate holds a lock. It ends a cool-down that Yield began.
func (m *memory) yieldedTo() {
	if m.yielded {
		m.coolDown, m.yielded = Pause{}, false
	}
}

// Rest makes the candidate leave its locks to others for the given time. Unlike the cool-down that Yield begins, this
// time does not end early when another candidate holds a lock.
func (c *Candidate) Rest(length time.Duration) { c.rest = PauseFor(c.Clock, length) }

// cool begins a cool-down that does not end early.
func (c *Candidate) cool(length time.Duration) {
	c.coolDown, c.yielded = PauseFor(c.Clock, length), false
}

// restsFor returns how much longer the candidate leaves a lock to other candidates.
func (c *Candidate) restsFor(name string) time.Duration {
	left := max(c.coolDown.Left(c.Clock), c.rest.Left(c.Clock))
	if c.HoldOff != nil {
		left = max(left, c.HoldOff(name))
	}
	return left
}

// past is what a candidate remembers about its own last terms.
type past struct {
	own      table.Token   // the token of the last term, which has ended by the time the candidate competes again
	names    []string      // the locks of that term; on other locks, another holder may have the same token
	term     *Term         // the last term, until the candidate competes again
	unkept   table.Token   // own, if that term expired because heartbeats failed
	yieldFor time.Duration // how long the candidate then lets other candidates go first
	expired  int           // how many terms expired for that reason since the last term of ten lease durations
}

func (p *past) began(t *Term) { p.own, p.names, p.term = t.token, t.names, t }

// on returns own and unkept if the last term held the named lock, and otherwise 0.
func (p *past) on(name string) (own, unkept table.Token) {
	if !slices.Contains(p.names, name) {
		return 0, 0
	}
	return p.own, p.unkept
}

// settle records how the last term ended. If it expired because heartbeats failed, the candidate was able to win the
// lock but not to keep it. Such a candidate must not win again and again while others are able to keep the lock. It
// therefore has to wait until its old lease expires, as the others do. From the second such term on, it waits even
// longer, so that the others can claim first. A term that was extended by heartbeats for ten lease durations resets the
// count.
func (p *past) settle() {
	t := p.term
	if p.term = nil; t == nil {
		return
	}
	p.unkept, p.yieldFor = 0, 0
	if t.standing.Load().acknowledged.Since(t.began) >= 10*t.lease {
		p.expired = 0
	}
	if !errors.Is(context.Cause(t.over), ErrExpired) || !t.inJeopardy() {
		return
	}
	p.unkept = t.token
	if p.expired++; p.expired > 1 {
		p.yieldFor = t.lease / 3
	}
}

// preference is what a candidate remembers about candidates of other priorities.
type preference struct {
	well  Instant     // since when all the candidate's polls have succeeded
	sick  bool        // the last poll failed
	asked table.Token // the last term whose holder the candidate asked for a handover

	spurned  bool          // it yielded to a preference, and has not since seen a higher priority keep the lock
	ignoring time.Duration // how long a new term ignores preferences
}

const longestIgnore = time.Hour

func (p *preference) looked(now Instant, err error) {
	if err != nil || p.sick || p.well == (Instant{}) {
		p.well, p.sick = now, err != nil
	}
}

// known is how many lease durations it takes a candidate of higher priority to prove itself. Such a candidate asks for
// a handover only after it has polled successfully for that long. A candidate that has yielded in vain ignores such
// requests for a while, but accepts them again once a candidate of higher priority has held the lock for that long. No
// candidate can hold the lock for that long without an acknowledged heartbeat, even if its last heartbeats commit late.
const known = 3

// see makes the candidate accept preferences again if an observation shows that a candidate of higher priority has held
// the lock for three lease durations. The argument rank is the candidate's own rank. A holder of the same priority
// proves nothing about candidates of higher priority.
func (p *preference) see(o table.Observation, rank int) {
	if o.LeaseRecord != nil && o.LeaseRecord.Rank < rank && o.Heartbeat.Sub(o.Token.Time()) >= known*o.LeaseRecord.Lease {
		p.spurned, p.ignoring = false, 0
	}
}

// ignoreFor returns how long a new term ignores preferences, which are handover requests from candidates of higher
// priority. Such a candidate might be able to poll and ask, but not to hold the lock. A holder that never ignored its
// requests would yield, win the lock back, and yield again, forever.
func (p *preference) ignoreFor(lease time.Duration) time.Duration {
	if p.spurned {
		p.ignoring = min(max(2*p.ignoring, 10*lease), max(longestIgnore, 10*lease))
	}
	p.spurned = false
	return p.ignoring
}

// prefer asks each holder of lower priority to hand its lock over, once per term. The candidate must first poll
// successfully for three lease durations. If it has led before, only the time since its last term counts. If a request
// fails, the candidate asks again after its next poll.
func (c *Candidate) prefer(ctx context.Context, seen []LockView) {
	p := &c.preference
	if c.Clock.Now().Since(p.well) < known*c.LeaseRecord.Lease {
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
