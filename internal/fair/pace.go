package fair

import "time"

// Pace contains the values that determine how long a waiter pauses between polls.
type Pace struct {
	Lease     time.Duration // the lease of the waiter
	RoundTrip time.Duration // the duration of the last poll
	Locks     int           // the number of locks that the waiter polls
}

// Pause returns how long the waiter pauses between polls, given its place in the queue and how long the lock has been
// held. The first waiter pauses for 1/16 of the time that the lock has been held, within limits. Waiters further back
// pause longer, because they only need to notice when they become first. A waiter for many locks polls less often,
// because each poll reads the rows of all these locks.
func (p Pace) Pause(place int, held time.Duration) time.Duration {
	head := min(max(held/16, 2*time.Millisecond, time.Duration(p.Locks)*100*time.Microsecond), p.longest())
	if place == 0 {
		return head
	}
	behind := head + time.Duration(place)*max(head, min(2*p.RoundTrip, 10*time.Millisecond)) + time.Duration(place-1)*head/2
	return min(behind, max(min(p.Lease/10, time.Second), head))
}

// Grace returns how long later waiters should leave a free lock to this waiter. It is long enough for the waiter to
// poll, notice that the lock is free, and claim it.
func (p Pace) Grace() time.Duration { return 2*p.longest() + 3*p.RoundTrip }

// longest returns the longest pause of the first waiter in a queue.
func (p Pace) longest() time.Duration {
	return min(max(p.Lease/100, 2*time.Millisecond), 100*time.Millisecond)
}
