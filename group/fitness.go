package group

import (
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// errUseless ends the term of a member that cannot claim or release any partition, so that other members can take over
// its share.
var errUseless = errors.New("no partition could be claimed or released for two lease durations")

// fitness judges whether this process is fit to be a member. It tracks how the last terms ended, and derives how long
// the process must cool down.
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

// coolDown returns how long the process waits before it joins again. A term that ended because Spanner could not be
// reached says nothing about the process, so there is no wait. After any other short term, the wait is twice as long as
// the one before. After a useless term, the next term is also on trial.
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

// progress records for how long a member has had partitions to claim or release without any success.
type progress struct {
	since elect.Instant // the first failure since the last success; zero: none
	alone map[*entry]bool
	err   error
}

// failed records a failure, including one in which Spanner aborted every attempt. The partitions in alone are known to
// have failed by themselves.
func (p *progress) failed(now elect.Instant, err error, alone ...*entry) {
	if p.since == (elect.Instant{}) {
		p.since, p.alone = now, map[*entry]bool{}
	}
	p.err = err
	for _, e := range alone {
		p.alone[e] = true
	}
}

// succeeded records that a partition was claimed or released, or that there is nothing left to do.
func (p *progress) succeeded() { *p = progress{} }

// lasts returns the time since the first failure, or zero if there was none since the last success.
func (p *progress) lasts(now elect.Instant) time.Duration {
	if p.since == (elect.Instant{}) {
		return 0
	}
	return now.Since(p.since)
}

// sick reports whether the problem is probably this member, rather than a single partition that no member can claim.
func (p *progress) sick() bool { return len(p.alone) >= 2 }

// useless reports whether the member withholds partitions from other members although it cannot claim or release them.
func (p *progress) useless(now elect.Instant, limit time.Duration, holds int) bool {
	return p.since != (elect.Instant{}) && p.lasts(now) >= limit && (p.sick() || holds == 0)
}
