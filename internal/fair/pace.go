package fair

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Pace contains the values that determine how long a waiter pauses between polls.
type Pace struct {
	Lease     time.Duration // the lease of the waiter
	RoundTrip time.Duration // the duration of the last poll
	Locks     int           // the number of locks that the waiter polls
}

// Pause returns how long the waiter pauses between polls, given its place in the queue and the time since the lock last
// changed hands. The first waiter pauses for 1/16 of that time, within limits. Waiters further back usually pause
// longer, because they only need to notice when they become first. The lower limit grows with the number of locks that
// the waiter polls, because each poll reads the rows of all of them.
func (p Pace) Pause(place int, held time.Duration) time.Duration {
	head := min(max(held/16, shortest, time.Duration(p.Locks)*100*time.Microsecond), p.longest())
	if place == 0 {
		return head
	}
	behind := head + time.Duration(place)*max(head, min(2*p.RoundTrip, 10*time.Millisecond)) + time.Duration(place-1)*head/2
	return min(behind, max(min(p.Lease/10, time.Second), head))
}

// Grace returns the grace period that the waiter writes into its ticket, which is how long later waiters should leave a
// free lock to it. However long the lock was held, this is enough time for the waiter to poll, notice that the lock is
// free, and claim it, unless a round trip takes more than a second.
func (p Pace) Grace() time.Duration { return min(2*p.longest()+3*p.RoundTrip, table.MaxGrace) }

// longest returns the longest pause of the first waiter in a queue.
func (p Pace) longest() time.Duration { return min(max(p.Lease/20, shortest), time.Second) }

// shortest is the shortest pause of the first waiter in a queue.
const shortest = 2 * time.Millisecond

// graceOf returns how long later waiters leave a lock to the waiter with the given ticket, including the waiter's
// priority delay. The argument held is the longest time for which the lock may have been held before it became free. A
// waiter's pauses grow with the time for which the lock is held, so the waiter needs less time after a short hold. A
// set, or a waiter of an older version, gets the whole grace period of its ticket, because its pauses are not known.
func graceOf(t table.Ticket, held time.Duration) time.Duration {
	delay := longestDelay * time.Duration(min(max(t.Rank, 0), table.MaxRank)) / table.MaxRank
	if t.Set || t.RoundTrip == 0 {
		return t.Grace + delay
	}
	return min(t.Grace, 2*max(held/16, shortest)+3*t.RoundTrip) + delay
}

// longestDelay is the longest time for which a candidate of the lowest priority leaves a free lock to candidates of
// higher priority. The actual time depends on the last holder's lease, which a ticket does not contain.
const longestDelay = time.Second
