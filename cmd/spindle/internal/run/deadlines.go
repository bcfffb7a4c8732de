package run

import "time"

// deadlines determines when exec signals a program to end, and when exec kills it. The program must exit before the
// lock's local deadline.
type deadlines struct {
	lease, grace time.Duration

	until time.Time // when the lock is lost, unless its lease is extended
	told  bool      // the program was signaled to end
	final bool      // extend no longer changes the field until
}

// margin returns the time reserved for killing the group. It allows for late scheduling of this process.
func (d *deadlines) margin() time.Duration { return min(d.lease/20, time.Second) }

// watched returns the time at which the watchdog kills the program. If exec is running, it kills the program earlier.
func (d *deadlines) watched() time.Time { return d.until.Add(-d.margin() / 2) }

// gracePeriod returns the time between the signal to end and SIGKILL.
func (d *deadlines) gracePeriod() time.Duration { return min(d.grace, MostGrace(d.lease)) }

// MostGrace returns the longest grace period that a lease allows. If one heartbeat is lost, the next one can still be
// acknowledged before exec signals the program to end. With a longer grace period, there would not be enough time.
func MostGrace(lease time.Duration) time.Duration { return lease / 4 }

// extend computes the deadline from the time left on the lease, and reports whether it has postponed the deadline.
// Once the program has been signaled to end, heartbeats no longer postpone the deadline, but a suspension of the
// machine can still make it earlier. The computed deadline varies slightly even without a heartbeat, because two
// clocks are read one after the other. Therefore, extend ignores an increase of up to a hundredth of the lease.
func (d *deadlines) extend(now time.Time, left time.Duration) (forward bool) {
	until := now.Add(left)
	forward = d.until.IsZero() || !d.told && until.Sub(d.until) > d.lease/100
	if !d.final && (forward || until.Before(d.until)) {
		d.until = until
	}
	return forward && !d.final
}

// lose limits the program to its grace period.
func (d *deadlines) lose(now time.Time) {
	d.final = true
	if last := now.Add(d.gracePeriod() + d.margin()); last.Before(d.until) {
		d.until = last
	}
}

// expire leaves the program no time.
func (d *deadlines) expire(now time.Time) { d.final, d.until = true, now }

// left returns the time until exec kills the program. The result is zero or negative if the kill is due.
func (d *deadlines) left(now time.Time) time.Duration { return d.until.Add(-d.margin()).Sub(now) }

// due returns the event that is due: late if the program must be signaled to end, overdue if it must be killed, and
// nothing otherwise. It returns late only once.
func (d *deadlines) due(now time.Time) happening {
	what := nothing
	switch left := d.left(now); {
	case left <= 0:
		what = overdue
	case !d.told && left <= d.gracePeriod():
		what = late
	}
	d.told = d.told || what != nothing
	return what
}
