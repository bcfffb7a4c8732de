package elect

import (
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

// Yield keeps the candidate from claiming a lock that it has just given up. This ends when another candidate holds the
// lock, or after a time limit. The limit is a third of the lease if the lock is known to have been released, and one
// lease duration otherwise. asked is the handover request that the candidate accepted, or "" if there was none.
func (c *Candidate) Yield(released bool, asked table.Request) {
	length := c.LeaseRecord.Lease
	if released {
		length /= 3
	}
	c.coolDown, c.yielded = PauseFor(c.Clock, length), true
	c.preference.spurned = asked == table.ByPreference
}

// yieldedTo is called when another candidate holds a lock. It ends a cool-down that was begun by Yield.
func (m *memory) yieldedTo() {
	if m.yielded {
		m.coolDown, m.yielded = Pause{}, false
	}
}

// Rest makes the candidate leave its locks to others for that long. Unlike Yield, this does not end when another candidate
// holds a lock.
func (c *Candidate) Rest(length time.Duration) { c.rest = PauseFor(c.Clock, length) }

// cool begins a cool-down that does not end before its time.
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
