package run

import "time"

// deadlines determines when exec signals a program to end, and when exec kills it. The program must exit before the
// lock's local deadline.
type deadlines struct {
	lease, grace time.Duration

	until time.Time // when the lock is lost, unless its lease is extended
	kill  time.Time // when the program is killed; zero until it has been signaled to end
	final bool      // heartbeats no longer extend until
}

// margin returns the time reserved for killing the group. It allows for late scheduling of this process.
func (d *deadlines) margin() time.Duration { return min(d.lease/20, time.Second) }

// gracePeriod returns the time between the signal to end and SIGKILL.
func (d *deadlines) gracePeriod() time.Duration { return min(d.grace, MostGrace(d.lease)) }

// MostGrace returns the longest grace period that a lease allows. With a longer one, exec would signal the program to
// end before two heartbeats in a row have failed.
func MostGrace(lease time.Duration) time.Duration { return lease / 4 }

// extend computes the deadline from left, which is how long the lock is still held, and returns it. Because two clocks
// are read one after the other, the result varies slightly even without a heartbeat. Therefore, extend does not move
// the deadline forward by less than a hundredth of the lease.
func (d *deadlines) extend(now time.Time, left time.Duration) time.Time {
	if d.final {
		return d.until
	}
	if until := now.Add(left); d.until.IsZero() || until.Sub(d.until) > d.lease/100 || until.Before(d.until) {
		d.until = until
	}
	return d.until
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

// end returns when the program must be killed. Once it has been signaled to end, heartbeats no longer postpone that.
func (d *deadlines) end() time.Time {
	last := d.until.Add(-d.margin())
	if !d.kill.IsZero() && d.kill.Before(last) {
		return d.kill
	}
	return last
}

// left returns the time until the program is killed, which is not positive if that is due.
func (d *deadlines) left(now time.Time) time.Duration { return d.end().Sub(now) }

// due returns late when the program must be signaled to end, and overdue when it must be killed. It returns late at
// most once, but continues to return overdue.
func (d *deadlines) due(now time.Time) happening {
	what := nothing
	switch left := d.left(now); {
	case left <= 0:
		what = overdue
	case d.kill.IsZero() && left <= d.gracePeriod():
		what = late
	default:
		return nothing
	}
	d.kill = d.end()
	return what
}
