package share

import (
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Fitness sets the cool-down of this process, which depends on how its last terms ended.
type Fitness struct {
	Lease time.Duration
	Trial bool // the next term is on trial (see plan.Member)

	pause time.Duration // the length of the next cool-down
}

// Ending describes how a term ended.
type Ending struct {
	Lasted  time.Duration
	Silence time.Duration // the time since the last acknowledged poll, claim or heartbeat
	Useless bool          // the term was given up as useless, or ended shortly before that
}

const (
	longestRest            = 10 // in lease durations
	longestUselessCoolDown = 32 // in lease durations, after a useless term
)

// CoolDown returns how long the process must wait before it joins the group again. docs/groups.md states the rules.
func (f *Fitness) CoolDown(e Ending) time.Duration {
	longest := longestRest * f.Lease
	switch {
	case e.Useless:
		longest, f.Trial = longestUselessCoolDown*f.Lease, true
	case e.Silence >= f.Lease*6/10:
		return 0
	case e.Lasted >= longest:
		f.pause = 0
	}
	pause := min(f.pause, longest)
	f.pause = min(max(2*pause, f.Lease), longest)
	return pause
}

// Recovered ends the trial, and resets the cool-down.
func (f *Fitness) Recovered() { f.Trial, f.pause = false, 0 }

// Conduct records for how long a member has tried to claim or release partitions without success during one term.
type Conduct struct {
	Lease time.Duration
	Began elect.Instant
	Acked elect.Instant // just before the last acknowledged poll or claim was sent
	Trial bool
	Since elect.Instant // the first failure since the last success; zero: none
	Err   error         // the last failure since the last success

	failures map[*Entry]failure
	worked   elect.Instant // on trial: since when the member has acted on a partition
}

// failure describes how a partition has failed since the last success.
type failure struct {
	since elect.Instant // the first time
	alone bool          // at least once on its own
}

// Failed records a failure to claim or release partitions, even if Spanner only aborted the attempt. If alone is true,
// each of the partitions counts as having failed on its own.
func (c *Conduct) Failed(now elect.Instant, err error, alone bool, entries ...*Entry) {
	if c.Since == (elect.Instant{}) {
		c.Since, c.failures = now, map[*Entry]failure{}
	}
	c.Err = err
	for _, e := range entries {
		f, known := c.failures[e]
		if !known {
			f.since = now
		}
		f.alone = f.alone || alone
		c.failures[e] = f
	}
}

// Heard notes that a request was acknowledged. The reply may come after the reply to a request that was sent later.
func (c *Conduct) Heard(sent elect.Instant) {
	if sent.Mono > c.Acked.Mono {
		c.Acked = sent
	}
}

// Succeeded records that a partition was claimed or released, or that there is nothing left to do.
func (c *Conduct) Succeeded() { c.Since, c.Err, c.failures = elect.Instant{}, nil, nil }

// Absolve forgets the failures of partitions that the member no longer has to claim or release, and of partitions that
// another holder has. If no failure is left, the member no longer counts as failing.
func (c *Conduct) Absolve(taken []*Entry) {
	maps.DeleteFunc(c.failures, func(e *Entry, _ failure) bool { return e.done() || slices.Contains(taken, e) })
	if len(c.failures) == 0 {
		c.Succeeded()
	}
}

// FailingSince returns when the member began to fail, or zero if it is not failing. A member that owns partitions
// counts as failing only if at least two partitions have failed on their own, because a single one may be a partition
// that no member can claim. FailingSince then returns when the second of them first failed.
func (c *Conduct) FailingSince(has int) elect.Instant {
	if has == 0 {
		return c.Since
	}
	var first, second elect.Instant
	for _, f := range c.failures {
		switch {
		case !f.alone:
		case first == (elect.Instant{}) || f.since.Mono < first.Mono:
			first, second = f.since, first
		case second == (elect.Instant{}) || f.since.Mono < second.Mono:
			second = f.since
		}
	}
	return second
}

// Sick reports whether the failures are probably due to this member, rather than to a single partition that no member
// can claim.
func (c *Conduct) Sick() bool { return c.FailingSince(1) != elect.Instant{} }

// Passes reports whether the member has just passed its trial: it has acted on a partition for one lease duration.
func (c *Conduct) Passes(now elect.Instant, acted int) bool {
	switch {
	case !c.Trial:
	case acted == 0:
		c.worked = elect.Instant{}
	case c.worked == elect.Instant{}:
		c.worked = now
	case now.Since(c.worked) >= c.Lease:
		c.Trial = false
		return true
	}
	return false
}

// Useless reports whether the member must give up its term, because it has been unable to claim or release partitions
// for so long that other members should get them.
func (c *Conduct) Useless(now elect.Instant, owned int) bool {
	limit := 2 * c.Lease
	if c.Trial {
		limit = c.Lease
	}
	return c.failsFor(now, limit, owned)
}

func (c *Conduct) failsFor(now elect.Instant, limit time.Duration, owned int) bool {
	since := c.FailingSince(owned)
	return since != (elect.Instant{}) && now.Since(since) >= limit
}

func (c *Conduct) Ending(now elect.Instant, heartbeat time.Duration, owned int, useless bool) Ending {
	useless = useless || c.Trial && c.Since != (elect.Instant{}) || c.failsFor(now, c.Lease*3/2, owned)
	return Ending{Lasted: now.Since(c.Began), Silence: min(now.Since(c.Acked), heartbeat), Useless: useless}
}
