package group

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// errUseless ends the term of a member that cannot claim or release any partition, so that other members can take over
// its share.
var errUseless = errors.New("no partition could be claimed or released for two lease durations")

// fitness decides how long this process must cool down after a term before it joins the group again. The decision
// depends on how the last terms ended.
type fitness struct {
	lease time.Duration
	pause time.Duration // the length of the next cool-down
	trial bool          // the next term is on trial: the plan assigns it one partition at most
}

// ending describes how a term ended.
type ending struct {
	lasted  time.Duration
	silence time.Duration // the time since any request was last acknowledged
	ill     bool          // the term ended just before it would have been given up as useless
	useless bool          // the term was given up as useless
}

const (
	longestRest            = 10 // in lease durations, after any other term
	longestUselessCoolDown = 32
)

// coolDown returns how long the process must wait before it joins the group again. If the term ended because Spanner
// could not be reached, the member is not to blame, so there is no wait. After every other short term, the wait is
// twice as long as the previous wait, up to a limit.
//
// If the member was useless, the limit is higher, and the next term is a trial. During a trial, the plan assigns the
// member at most one partition.
func (f *fitness) coolDown(e ending) time.Duration {
	useless := e.useless || e.ill
	silent := e.silence >= f.lease*6/10
	if silent && !useless {
		return 0
	}
	if e.lasted >= longestRest*f.lease && !useless {
		f.pause = 0
	}
	longest := longestRest * f.lease
	if useless {
		longest, f.trial = longestUselessCoolDown*f.lease, true
	}
	pause := f.pause
	f.pause = min(max(2*pause, f.lease), longest)
	return pause
}

// recovered ends the trial.
func (f *fitness) recovered() { f.trial, f.pause = false, 0 }

// progress records for how long a member has tried to claim or release partitions without success.
type progress struct {
	since    elect.Instant // the first failure since the last success; zero: none
	failures map[*entry]failure
	err      error
}

// failure describes how a partition has failed since the last success.
type failure struct {
	since elect.Instant // the first time
	alone bool          // at least once by itself
}

// failed records a failure to claim or release partitions, including a failure because Spanner aborted every attempt. If
// alone is true, the partitions have failed by themselves.
func (p *progress) failed(now elect.Instant, err error, alone bool, entries ...*entry) {
	if p.since == (elect.Instant{}) {
		p.since, p.failures = now, map[*entry]failure{}
	}
	p.err = err
	for _, e := range entries {
		f, known := p.failures[e]
		if !known {
			f.since = now
		}
		f.alone = f.alone || alone
		p.failures[e] = f
	}
}

// succeeded records that a partition was claimed or released, or that there is nothing left to do.
func (p *progress) succeeded() { *p = progress{} }

// absolve forgets the failures at partitions that the member no longer has to claim or release, and at those that it
// can't claim because another holder has them. If no failure is left, the member has nothing to answer for.
func (p *progress) absolve(taken []*entry) {
	maps.DeleteFunc(p.failures, func(e *entry, _ failure) bool { return e.done() || slices.Contains(taken, e) })
	if len(p.failures) == 0 {
		p.succeeded()
	}
}

// lasts returns the time since the first failure, or zero if there was none since the last success.
func (p *progress) lasts(now elect.Instant) time.Duration {
	if p.since == (elect.Instant{}) {
		return 0
	}
	return now.Since(p.since)
}

// sick reports whether the problem is probably this member, rather than a single partition that no member can claim: at
// least two partitions have failed by themselves.
func (p *progress) sick() bool { return p.sickSince() != (elect.Instant{}) }

// sickSince returns since when two of the partitions that have failed by themselves have failed, or zero if there are no
// two. A healthy member is sick for a moment if a second partition fails once, while there is one that no member can
// claim.
func (p *progress) sickSince() elect.Instant {
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

// useless reports whether the member has withheld partitions from other members for at least that long, although it
// cannot claim or release them.
func (p *progress) useless(now elect.Instant, limit time.Duration, holds int) bool {
	return p.sick() && now.Since(p.sickSince()) >= limit || holds == 0 && p.lasts(now) >= limit
}
