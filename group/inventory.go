package group

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// state is the state of a partition from this member's point of view. Only the code in this file changes it.
type state int

const (
	free       state = iota // this member does not own it, although work under an earlier token may still be running
	claimed                 // its claim and confirmation are queued or in progress
	held                    // confirmed; this member acts on it
	revoking                // no longer acted on; its work's context is canceled
	releasing               // its work has returned, and its release is in progress
	unresolved              // rows may name this member, but it neither acts on the partition nor has a request in progress
)

func (s state) String() string {
	return [...]string{"free", "claimed", "held", "revoking", "releasing", "unresolved"}[s]
}

// entry is one partition in the inventory. It belongs to the loop, except for the fields name, lock and acted, which
// any goroutine may read.
type entry struct {
	name  string
	lock  string
	acted atomic.Pointer[assignment] // the assignment that is acted on; nil: none

	state       state
	changed     int         // the number of the last poll sent before the state changed
	target      bool        // the plan assigns it to this member
	doubted     bool        // an earlier outcome is unknown, so rows may name this member even if the claim fails
	assigned    *assignment // for held, revoking and releasing
	busy        *assignment // the assignment of this or an earlier term whose work has not returned
	history     history     // from earlier polls
	leases      bool        // the next poll must read its lease rows
	suspect     suspicion   // set if it can't be claimed or released
	earlyReturn suspicion   // set if its work returned early and the option is Release
	paused      bool        // the program has paused it
	shown       bool        // the table shows that it is paused, in this term
}

// become is the only function that changes a state.
func (e *entry) become(s state, look int) { e.state, e.changed = s, look }

// claim marks the partition as to be claimed.
func (e *entry) claim(look int) {
	e.doubted = e.doubted || e.state == unresolved
	e.become(claimed, look)
}

// leftOut ends a claim that did not take the partition, for example because another member claimed it first.
func (e *entry) leftOut(look int) {
	if e.doubted {
		e.become(unresolved, look)
	} else {
		e.become(free, look)
	}
}

// hold begins an assignment, after the claim was confirmed.
func (e *entry) hold(a *assignment, look int) {
	e.assigned = a
	e.history = history{assumed: a.in.m.config.Lease} // earlier observations are out of date
	e.become(held, look)
}

// revoke ends the work under this token for good.
func (e *entry) revoke(reason error, look int) {
	e.assigned.revoke(reason)
	e.become(revoking, look)
}

// release marks the partition as being freed by a request.
func (e *entry) release(look int) { e.become(releasing, look) }

// doubt records that rows may name this member.
func (e *entry) doubt(look int) {
	e.assigned, e.doubted = nil, true
	e.become(unresolved, look)
}

// clear records that no row names this member any longer.
func (e *entry) clear(look int) {
	e.assigned, e.doubted = nil, false
	e.become(free, look)
}

// done reports whether the member does not have to claim or release the partition.
func (e *entry) done() bool { return e.state == free && (!e.target || e.paused) }

// suspicion records that a partition could not be claimed or released. Such a partition is suspect. It is tried again
// in a commit of its own, at growing intervals.
type suspicion struct {
	since elect.Instant // the time of the first failure; zero: no failure
	until elect.Instant // when it may be tried again
	pause time.Duration // the last pause
	err   error
}

// fail records that the partition failed alone.
func (s *suspicion) fail(c elect.Clock, lease time.Duration, err error) {
	now := c.Now()
	if s.since == (elect.Instant{}) {
		s.since = now
	}
	s.pause = min(max(2*s.pause, lease/10), 3*lease)
	s.until, s.err = now, err
	s.until.Mono += int64(s.pause)
	s.until.Wall += int64(s.pause)
}

// left returns the time until the partition may be tried again.
func (s *suspicion) left(now elect.Instant) time.Duration {
	if s.since == (elect.Instant{}) {
		return 0
	}
	return max(time.Duration(s.until.Mono-now.Mono), 0)
}

// inventory holds a group's partitions as this member sees them.
type inventory struct {
	all    []*entry // sorted by name
	byLock map[string]*entry
	held   atomic.Int64 // the number of partitions that are acted on
	paused atomic.Int64 // the number of partitions that the program has paused

	suspects []*entry // partitions that could not be claimed or released
}

// suspect records that a partition failed alone.
func (v *inventory) suspect(e *entry, c elect.Clock, lease time.Duration, err error) {
	if e.suspect.since == (elect.Instant{}) {
		v.suspects = append(v.suspects, e)
	}
	e.suspect.fail(c, lease, err)
}

// illegible records that a partition's rows cannot be read.
func (v *inventory) illegible(e *entry, now elect.Instant, err error) {
	if e.suspect.since == (elect.Instant{}) {
		e.suspect = suspicion{since: now, err: err}
		v.suspects = append(v.suspects, e)
	}
}

// absolve trusts the suspects that no longer have to be claimed or released, those that another holder has, and those
// whose rows can be read again.
func (v *inventory) absolve(legible, taken []*entry) {
	for _, e := range slices.Clone(v.suspects) {
		if e.done() || slices.Contains(taken, e) || e.suspect.pause == 0 && slices.Contains(legible, e) {
			v.trust(e)
		}
	}
}

// trust records that a partition was claimed or released, or no longer has to be.
func (v *inventory) trust(e *entry) {
	e.suspect = suspicion{}
	v.suspects = slices.DeleteFunc(v.suspects, func(s *entry) bool { return s == e })
}

// begin prepares the inventory for a new Run, in which nothing is in progress yet.
func (v *inventory) begin() {
	for _, e := range v.all {
		e.clear(0)
		e.target, e.history, e.leases, e.suspect, e.earlyReturn, e.paused = false, history{}, false, suspicion{}, suspicion{}, false
	}
	v.suspects = nil
}

// termEnded ends all assignments, because the member's term has ended. Entries whose work has not returned stay busy.
func (v *inventory) termEnded(reason error) {
	for _, e := range v.all {
		if e.assigned != nil && e.state == held {
			e.revoke(reason, 0)
		}
		e.clear(0)
		e.target, e.leases, e.shown = false, false, false
	}
}

// assign records which partitions the plan assigns to this member.
func (v *inventory) assign(indexes []int) {
	for _, e := range v.all {
		e.target = false
	}
	for _, i := range indexes {
		v.all[i].target = true
	}
	for _, e := range v.all {
		e.shown = e.shown && e.target // another member's claim replaces the mark
	}
}

// pause records which partitions the program has paused, and returns the changes.
func (v *inventory) pause(names map[string]bool) (paused, resumed []*entry) {
	for _, e := range v.all {
		switch is := names[e.name]; {
		case is && !e.paused:
			paused = append(paused, e)
		case !is && e.paused:
			resumed = append(resumed, e)
		}
		e.paused = names[e.name]
		e.shown = e.shown && e.paused
	}
	v.paused.Store(int64(len(names)))
	return paused, resumed
}

// works reports whether work of term t has not returned. If revoked is true, it considers only work that was revoked.
func (v *inventory) works(t *term, revoked bool) bool {
	for _, e := range v.all {
		if a := e.busy; a != nil && a.in == t && (e.state == revoking || !revoked) {
			return true
		}
	}
	return false
}

// busy returns the number of partitions whose work has not returned, in any term, and the name of the first one.
func (v *inventory) busy() (n int, first string) {
	for _, e := range v.all {
		if e.busy != nil {
			if n++; n == 1 {
				first = e.name
			}
		}
	}
	return n, first
}

// anyBusy reports whether any work has not returned, in any term.
func (v *inventory) anyBusy() bool { n, _ := v.busy(); return n > 0 }

// holds returns the number of partitions that the member owns, including those that it no longer acts on.
func (v *inventory) holds() (n int) {
	for _, e := range v.all {
		if e.assigned != nil {
			n++
		}
	}
	return n
}

// assignment is one period during which this member owns a partition under one token. It begins when a claim is
// confirmed, and ends when the partition is released. The loop owns every field that is not marked otherwise.
type assignment struct {
	*entry
	in    *term
	token table.Token

	ctx    context.Context // ends when the assignment is revoked or the term ends
	cancel context.CancelCauseFunc
	since  elect.Instant // when the assignment was revoked
	lost   bool          // its lease row is missing, so the partition is polled instead of being released
	let    bool          // the release does not wait for the work

	began elect.Instant // when the work began
	pause elect.Backoff // the pause before work that returned early begins again
	again alarm
	said  bool // an early return was already logged
}

// valid reports whether the partition may be acted on. Any goroutine may call it.
func (a *assignment) valid() bool {
	return a.ctx.Err() == nil && a.in.lease.Held() && a.in.looks.left() > 0
}

// revoke cancels the work's context for good. The token is never acted on again.
func (a *assignment) revoke(reason error) {
	a.since = a.in.m.config.Clock.Now()
	if a.acted.CompareAndSwap(a, nil) {
		a.in.m.inventory.held.Add(-1)
	}
	a.cancel(reason)
}
