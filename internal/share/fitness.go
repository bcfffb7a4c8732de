package share

import (
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Fitness decides how long this process must cool down after a term before it joins the group again. The decision
// depends on how the last terms ended.
type Fitness struct {
	Lease time.Duration
	Trial bool // the next term is on trial: the plan assigns it one partition at most

	pause time.Duration // the length of the next cool-down
}

// Ending describes how a term ended.
type Ending struct {
	Lasted  time.Duration
	Silence time.Duration // the time since any request was last acknowledged
	Ill     bool          // the term ended just before it would have been given up as useless
	Useless bool          // the term was given up as useless
}

const (
	longestRest            = 10 // in lease durations, after any other term
	longestUselessCoolDown = 32
)

// CoolDown returns how long the process must wait before it joins the group again. If the term ended because Spanner
// could not be reached, the member is not to blame, so there is no wait. After every other short term, the wait is
// twice as long as the previous wait, up to a limit.
//
// If the member was useless, the limit is higher, and the next term is a trial. During a trial, the plan assigns the
// member at most one partition.
func (f *Fitness) CoolDown(e Ending) time.Duration {
	useless := e.Useless || e.Ill
	silent := e.Silence >= f.Lease*6/10
	if silent && !useless {
		return 0
	}
	if e.Lasted >= longestRest*f.Lease && !useless {
		f.pause = 0
	}
	longest := longestRest * f.Lease
	if useless {
		longest, f.Trial = longestUselessCoolDown*f.Lease, true
	}
	pause := f.pause
	f.pause = min(max(2*pause, f.Lease), longest)
	return pause
}

// Recovered ends the trial.
func (f *Fitness) Recovered() { f.Trial, f.pause = false, 0 }

// Progress records for how long a member has tried to claim or release partitions without success.
type Progress struct {
	Since    elect.Instant // the first failure since the last success; zero: none
	Err      error
	failures map[*Entry]failure
}

// failure describes how a partition has failed since the last success.
type failure struct {
	since elect.Instant // the first time
	alone bool          // at least once by itself
}

// Failed records a failure to claim or release partitions, including a failure because Spanner aborted every attempt. If
// alone is true, the partitions have failed by themselves.
func (p *Progress) Failed(now elect.Instant, err error, alone bool, entries ...*Entry) {
	if p.Since == (elect.Instant{}) {
		p.Since, p.failures = now, map[*Entry]failure{}
	}
	p.Err = err
	for _, e := range entries {
		f, known := p.failures[e]
		if !known {
			f.since = now
		}
		f.alone = f.alone || alone
		p.failures[e] = f
	}
}

// Succeeded records that a partition was claimed or released, or that there is nothing left to do.
func (p *Progress) Succeeded() { *p = Progress{} }

// Absolve forgets the failures at partitions that the member no longer has to claim or release, and at those that it
// can't claim because another holder has them. If no failure is left, the member has nothing to answer for.
func (p *Progress) Absolve(taken []*Entry) {
	maps.DeleteFunc(p.failures, func(e *Entry, _ failure) bool { return e.done() || slices.Contains(taken, e) })
	if len(p.failures) == 0 {
		p.Succeeded()
	}
}

// Lasts returns the time since the first failure, or zero if there was none since the last success.
func (p *Progress) Lasts(now elect.Instant) time.Duration {
	if p.Since == (elect.Instant{}) {
		return 0
	}
	return now.Since(p.Since)
}

// Sick reports whether the problem is probably this member, rather than a single partition that no member can claim: at
// least two partitions have failed by themselves.
func (p *Progress) Sick() bool { return p.SickSince() != (elect.Instant{}) }

// SickSince returns since when two of the partitions that have failed by themselves have failed, or zero if there are no
// two. A healthy member is sick for a moment if a second partition fails once, while there is one that no member can
// claim.
func (p *Progress) SickSince() elect.Instant {
	var first, second elect.Instant
	for _, f := range p.failures {
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

// Useless reports whether the member has withheld partitions from other members for at least that long, although it
// cannot claim or release them.
func (p *Progress) Useless(now elect.Instant, limit time.Duration, holds int) bool {
	return p.Sick() && now.Since(p.SickSince()) >= limit || holds == 0 && p.Lasts(now) >= limit
}

// Conduct is how a member does during one term.
type Conduct struct {
	Progress Progress
	Lease    time.Duration
	Began    elect.Instant
	Acked    elect.Instant // just before the last acknowledged request was sent, not counting heartbeats
	Trial    bool

	worked elect.Instant // on trial: since when the member has acted on a partition
}

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

// Useless reports whether the member must give up its term, because it keeps partitions from other members without
// being able to claim or release any.
func (c *Conduct) Useless(now elect.Instant, owned int) bool {
	limit := 2 * c.Lease
	if c.Trial {
		limit = c.Lease
	}
	return c.Progress.Useless(now, limit, owned)
}

// Ending describes how the term ends.
func (c *Conduct) Ending(now elect.Instant, heartbeat time.Duration, owned int, useless bool) Ending {
	ill := c.Trial && c.Progress.Since != (elect.Instant{}) || c.Progress.Useless(now, c.Lease*3/2, owned)
	return Ending{Lasted: now.Since(c.Began), Silence: min(now.Since(c.Acked), heartbeat), Ill: ill, Useless: useless}
}
