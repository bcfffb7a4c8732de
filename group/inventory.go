package group

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// state is what a partition is to this member. It changes in this file only.
type state int

const (
	free       state = iota // this member has nothing of it: at most work under an earlier token that has not returned
	claimed                 // its claim waits for its turn, or is under way with its confirmation
	held                    // confirmed: this member acts on it
	revoking                // held, and not acted on any more: its work's context is canceled
	releasing               // its work has returned, and its release is under way
	unresolved              // rows may name this member, which neither acts on it nor has anything under way for it
)

func (s state) String() string {
	return [...]string{"free", "claimed", "held", "revoking", "releasing", "unresolved"}[s]
}

// entry is one partition in the inventory. It belongs to the loop, except for acted and its names.
type entry struct {
	name  string
	lock  string
	acted atomic.Pointer[assignment] // what is acted on, for all goroutines; nil: nothing

	state       state
	changed     int         // the number of the look during which, or after which, the state changed
	target      bool        // the plan assigns it to this member
	doubted     bool        // for a claim: rows may name this member anyway, because an earlier outcome is not known
	assigned    *assignment // for held, revoking and releasing
	busy        *assignment // whose work has not returned, of this term or an earlier one
	history     history     // what looks have shown of it
	leases      bool        // the next look has to read its lease rows
	suspect     suspicion   // it can't be claimed or released
	earlyReturn suspicion   // its work returns early, if early work is released
	paused      bool        // the program has paused it
}

// become is the one place where a state changes.
func (e *entry) become(s state, look int) { e.state, e.changed = s, look }

// claim marks the partition as to be claimed.
func (e *entry) claim(look int) {
	e.doubted = e.doubted || e.state == unresolved
	e.become(claimed, look)
}

// leftOut ends a claim because another was first.
func (e *entry) leftOut(look int) {
	if e.doubted {
		e.become(unresolved, look)
	} else {
		e.become(free, look)
	}
}

// hold begins an assignment: the claim is confirmed.
func (e *entry) hold(a *assignment, look int) {
	e.assigned, e.doubted = a, false
	e.history = history{assumed: a.in.m.config.Lease} // earlier observations are out of date
	e.become(held, look)
}

// revoke ends the work under the token, for good.
func (e *entry) revoke(reason error, look int) {
	e.assigned.revoke(reason)
	e.become(revoking, look)
}

// release leaves the partition to a request that frees it.
func (e *entry) release(look int) { e.become(releasing, look) }

// doubt notes that rows may name this member.
func (e *entry) doubt(look int) {
	e.assigned, e.doubted = nil, true
	e.become(unresolved, look)
}

// clear notes that no row names this member any more.
func (e *entry) clear(look int) {
	e.assigned, e.doubted = nil, false
	e.become(free, look)
}

// suspicion is that a partition can't be claimed or released: it is then tried alone, and ever less often.
type suspicion struct {
	since elect.Instant // of the first failure; zero: there is none
	until elect.Instant // when it may be tried again
	pause time.Duration // the last one
	err   error
}

// fail notes that the partition failed alone.
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

// left returns how long the partition is not to be tried.
func (s *suspicion) left(now elect.Instant) time.Duration {
	if s.since == (elect.Instant{}) {
		return 0
	}
	return max(time.Duration(s.until.Mono-now.Mono), 0)
}

// inventory has the partitions of a group, as this member sees them.
type inventory struct {
	all    []*entry // in the order of their names
	byLock map[string]*entry
	held   atomic.Int64 // how many are acted on

	suspects []*entry // partitions that could not be claimed or released
}

// suspect notes that a partition failed alone.
func (v *inventory) suspect(e *entry, c elect.Clock, lease time.Duration, err error) {
	if e.suspect.since == (elect.Instant{}) {
		v.suspects = append(v.suspects, e)
	}
	e.suspect.fail(c, lease, err)
}

// illegible notes that a partition's rows can't be read.
func (v *inventory) illegible(e *entry, now elect.Instant, err error) {
	if e.suspect.since == (elect.Instant{}) {
		e.suspect = suspicion{since: now, err: err}
		v.suspects = append(v.suspects, e)
	}
}

// absolve trusts partitions that need not be claimed or released any more, and those that can be read again.
func (v *inventory) absolve(legible []*entry) {
	for _, e := range slices.Clone(v.suspects) {
		if e.state == free && !e.target || e.suspect.pause == 0 && slices.Contains(legible, e) {
			v.trust(e)
		}
	}
}

// trust notes that a partition could be claimed or released, or need not be any more.
func (v *inventory) trust(e *entry) {
	e.suspect = suspicion{}
	v.suspects = slices.DeleteFunc(v.suspects, func(s *entry) bool { return s == e })
}

// begin prepares for a new Run: nothing is under way.
func (v *inventory) begin() {
	for _, e := range v.all {
		e.clear(0)
		e.target, e.history, e.leases, e.suspect, e.earlyReturn = false, history{}, false, suspicion{}, suspicion{}
	}
	v.suspects = nil
}

// termEnded ends all assignments, because the member's term is over. Work that has not returned stays busy.
func (v *inventory) termEnded(reason error) {
	for _, e := range v.all {
		if e.assigned != nil && e.state == held {
			e.revoke(reason, 0)
		}
		e.clear(0)
		e.target, e.leases = false, false
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
}

// works reports whether work of this term has not returned: any work, or only revoked work.
func (v *inventory) works(t *term, revoked bool) bool {
	for _, e := range v.all {
		if a := e.busy; a != nil && a.in == t && (e.state == revoking || !revoked) {
			return true
		}
	}
	return false
}

// busy returns how many partitions' work has not returned, in any term, and the first of them.
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

// anyBusy reports whether work has not returned, in any term.
func (v *inventory) anyBusy() bool { n, _ := v.busy(); return n > 0 }

// holds returns how many partitions the member has, acted on or not.
func (v *inventory) holds() (n int) {
	for _, e := range v.all {
		if e.assigned != nil {
			n++
		}
	}
	return n
}

// assignment is one time of having a partition, from its confirmation under a token to its release. The loop owns every
// field that is not marked otherwise.
type assignment struct {
	*entry
	in    *term
	token table.Token

	ctx    context.Context // ends when it is revoked, or the term ends
	cancel context.CancelCauseFunc
	since  elect.Instant // when it was revoked
	lost   bool          // its lease row is gone: it is not released, but looked at again
	let    bool          // the release does not wait for its work

	began elect.Instant // when its work began
	pause elect.Backoff // before work that returned early begins again
	again alarm
	said  bool // the early return was logged
}

// valid reports whether the partition may be acted on. Any goroutine may call it.
func (a *assignment) valid() bool {
	return a.ctx.Err() == nil && a.in.lease.Held() && a.in.looks.left() > 0
}

// revoke cancels the work's context, for good: no member acts on the token again.
func (a *assignment) revoke(reason error) {
	a.since = a.in.m.config.Clock.Now()
	if a.acted.CompareAndSwap(a, nil) {
		a.in.m.inventory.held.Add(-1)
	}
	a.cancel(reason)
}
