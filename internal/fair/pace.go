package fair

import "time"

// Pace is what a waiter's pauses depend on.
type Pace struct {
	Lease     time.Duration // its own
	RoundTrip time.Duration // of its last look
	Locks     int           // that it looks at
}

// Pause returns the time between looks for a waiter at that place in the queue of a lock that has been held for so
// long. The first waiter takes a lock within a sixteenth of the time that it was held; the others only need to know
// when they are next. A look at many locks reads as many rows.
func (p Pace) Pause(place int, held time.Duration) time.Duration {
	head := min(max(held/16, 2*time.Millisecond, time.Duration(p.Locks)*100*time.Microsecond), p.longest())
	if place == 0 {
		return head
	}
	behind := head + time.Duration(place)*max(head, min(2*p.RoundTrip, 10*time.Millisecond)) + time.Duration(place-1)*head/2
	return min(behind, max(min(p.Lease/10, time.Second), head))
}

// Grace returns how long those behind a waiter should leave a free lock to it: it may be about to look, or its claim on
// its way.
func (p Pace) Grace() time.Duration { return 2*p.longest() + 3*p.RoundTrip }

// longest returns the longest pause of a waiter at the head.
func (p Pace) longest() time.Duration {
	return min(max(p.Lease/100, 2*time.Millisecond), 100*time.Millisecond)
}
