package fair

import "time"

// Pace contains the values that determine how long a waiter pauses between looks.
type Pace struct {
	Lease     time.Duration // the lease of the waiter
	RoundTrip time.Duration // the duration of the last look
	Locks     int           // the number of locks that it looks at
}

// Pause returns the time between the looks of a waiter, given its place in the queue and how long the lock has been
// held. The first waiter notices a release within a sixteenth of the time for which the lock was held. Other waiters
// only need to notice when they become first. Looks at many locks are less frequent, because each of them reads as many
// rows.
func (p Pace) Pause(place int, held time.Duration) time.Duration {
	head := min(max(held/16, 2*time.Millisecond, time.Duration(p.Locks)*100*time.Microsecond), p.longest())
	if place == 0 {
		return head
	}
	behind := head + time.Duration(place)*max(head, min(2*p.RoundTrip, 10*time.Millisecond)) + time.Duration(place-1)*head/2
	return min(behind, max(min(p.Lease/10, time.Second), head))
}

// Grace returns how long later waiters should leave a free lock to this waiter, which may be about to look or may
// already have sent its claim.
func (p Pace) Grace() time.Duration { return 2*p.longest() + 3*p.RoundTrip }

// longest returns the longest pause of the first waiter in a queue.
func (p Pace) longest() time.Duration {
	return min(max(p.Lease/100, 2*time.Millisecond), 100*time.Millisecond)
}
