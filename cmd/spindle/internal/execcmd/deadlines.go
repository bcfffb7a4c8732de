package execcmd

import "time"

// deadlines says when exec signals a program to end, and when it kills the program, so that it is gone before the lock's
// local deadline.
type deadlines struct {
	lease, grace time.Duration

	until time.Time // when the lock is lost, unless its lease is extended
	kill  time.Time // when the program is killed, once it was signaled to end
	final bool      // nothing extends it any more
}

// margin returns the time kept for killing a group, even if this process is scheduled late.
func (d *deadlines) margin() time.Duration { return min(d.lease/20, time.Second) }

// gracePeriod returns the time between the two signals.
func (d *deadlines) gracePeriod() time.Duration { return min(d.grace, MostGrace(d.lease)) }

// MostGrace leaves the program alone until two heartbeats in a row have failed.
func MostGrace(lease time.Duration) time.Duration { return lease / 4 }

// extend notes how long the lock is still held, and returns until when. A deadline moves forward only by more than the time
// between reading two clocks.
func (d *deadlines) extend(now time.Time, left time.Duration) time.Time {
	if d.final {
		return d.until
	}
	if until := now.Add(left); d.until.IsZero() || until.Sub(d.until) > d.lease/100 || until.Before(d.until) {
		d.until = until
	}
	return d.until
}

// lose leaves the program its grace, and no more.
func (d *deadlines) lose(now time.Time) {
	d.final = true
	if last := now.Add(d.gracePeriod() + d.margin()); last.Before(d.until) {
		d.until = last
	}
}

// due returns late if the program must now be signaled to end, and overdue, again and again, if it must be killed. Once the
// program was signaled to end, there is no way back.
func (d *deadlines) due(now time.Time) happening {
	last := d.until.Add(-d.margin())
	switch {
	case !d.kill.IsZero() && last.Before(d.kill):
		d.kill = last
		fallthrough
	case !d.kill.IsZero():
		if now.Before(d.kill) {
			return nothing
		}
		return overdue
	case !now.Before(last):
		d.kill = last
		return overdue
	case !now.Before(last.Add(-d.gracePeriod())):
		d.kill = last
		return late
	}
	return nothing
}
