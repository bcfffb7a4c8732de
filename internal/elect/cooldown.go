package elect

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// coolDown is a period during which a candidate leaves the locks to other candidates.
type coolDown struct {
	since   Instant
	length  time.Duration
	yielded bool // it also ends when another candidate holds the lock
}

// begin starts a cool-down of that length.
func (d *coolDown) begin(c Clock, length time.Duration) {
	*d = coolDown{since: c.Now(), length: length}
}

// yieldedTo is called when another candidate holds the lock. It ends a cool-down that was begun by Yield.
func (d *coolDown) yieldedTo() {
	if d.yielded {
		*d = coolDown{}
	}
}

// left returns how much longer the cool-down lasts. If that is not positive, the cool-down has ended.
func (d *coolDown) left(c Clock) time.Duration {
	if d.length == 0 {
		return 0
	}
	return d.length - c.Now().Since(d.since)
}

// Yield keeps the candidate from claiming a lock that it has given up, until another candidate holds the lock or a time
// limit has passed. The limit is a third of the lease if the lock is known to be released, and otherwise one lease
// duration. asked is the handover request that the holder accepted, or "".
func (c *Candidate) Yield(released bool, asked table.Request) {
	length := c.LeaseRecord.Lease
	if released {
		length /= 3
	}
	c.coolDown.begin(c.Clock, length)
	c.coolDown.yielded = true
	c.preference.spurned = asked == table.ByPreference
}
