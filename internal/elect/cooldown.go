package elect

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// coolDown is a time in which a candidate leaves the locks to others.
type coolDown struct {
	since   Instant
	length  time.Duration
	yielded bool // it ends once another holds the lock
}

// begin makes it last that long from now.
func (d *coolDown) begin(c Clock, length time.Duration) {
	*d = coolDown{since: c.Now(), length: length}
}

// yieldedTo is called when another holds the lock. It ends a cool-down that waits for that.
func (d *coolDown) yieldedTo() {
	if d.yielded {
		*d = coolDown{}
	}
}

// left returns how long it still lasts: it is over if that is not positive.
func (d *coolDown) left(c Clock) time.Duration {
	if d.length == 0 {
		return 0
	}
	return d.length - c.Now().Since(d.since)
}

// Yield makes the candidate leave the lock of a term that it gave up to others: until another holds it, or a third of a
// lease has passed since it was released, or a lease if it is not known to be released. Asked is the accepted request,
// or "".
func (c *Candidate) Yield(released bool, asked table.Request) {
	length := c.LeaseRecord.Lease
	if released {
		length /= 3
	}
	c.coolDown.begin(c.Clock, length)
	c.coolDown.yielded = true
	c.preference.spurned = asked == table.ByPreference
}
