package group

import (
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// errUseless ends the term of a member that can claim no partition, or release none, so that others can have them.
var errUseless = errors.New("for two leases, no partition could be claimed or released")

// fitness says whether this process is fit to be a member: how its last terms ended, and so how long it cools down.
type fitness struct {
	lease time.Duration
	pause time.Duration // of the next cool-down
	trial bool          // the next term is on trial: the plan assigns it one partition at most
}

// ending is how a term ended.
type ending struct {
	lasted  time.Duration
	silence time.Duration // how long no request at all had been acknowledged
	ill     bool          // it was about to be given up as useless
	useless bool          // it was given up as useless
}

const (
	longestRest            = 10 // leases, after terms that ended otherwise
	longestUselessCoolDown = 32
)

// coolDown returns how long the process waits before it joins again. A term that ended because Spanner could not be
// reached says nothing about the process. After other short terms it cools down twice as long each time. After a
// useless term the next one is on trial.
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

// progress is since when something is to be claimed or released, and nothing succeeds.
type progress struct {
	since elect.Instant // of the first failure since the last success; zero: none
	alone map[*entry]bool
	err   error
}

// failed takes in a failure, even if Spanner aborted each attempt, and the partitions it is known to be about.
func (p *progress) failed(now elect.Instant, err error, alone ...*entry) {
	if p.since == (elect.Instant{}) {
		p.since, p.alone = now, map[*entry]bool{}
	}
	p.err = err
	for _, e := range alone {
		p.alone[e] = true
	}
}

// succeeded takes in that something was claimed or released, or that nothing is left to do.
func (p *progress) succeeded() { *p = progress{} }

// lasts returns how long there has been no success.
func (p *progress) lasts(now elect.Instant) time.Duration {
	if p.since == (elect.Instant{}) {
		return 0
	}
	return now.Since(p.since)
}

// sick reports whether this member fails, and not one partition for everybody.
func (p *progress) sick() bool { return len(p.alone) >= 2 }

// useless reports whether the member keeps partitions from others that it can't claim, or release.
func (p *progress) useless(now elect.Instant, limit time.Duration, holds int) bool {
	return p.since != (elect.Instant{}) && p.lasts(now) >= limit && (p.sick() || holds == 0)
}
