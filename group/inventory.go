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
	free       state = iota // nothing of this member: at most work under an earlier token that has not returned
	claimed                 // its claim waits for its turn, or is under way with its confirmation
	held                    // confirmed: this member acts on it
	revoking                // held, and not acted on any more: its work has been told to end
	releasing               // its work has returned, and its release is under way
	unresolved              // rows may name this member, which neither acts on it nor has anything under way for it
)

func (s state) String() string {
	return [...]string{"free", "claimed", "held", "revoking", "releasing", "unresolved"}[s]
}

// entry is one partition in the inventory. It belongs to the loop, but for acted and its names.
type entry struct {
	name  string
	lock  string
	acted atomic.Pointer[assignment] // what is acted on, for everybody; nil: nothing is

	state       state
	changed     int         // the number of the look during which, or after which, the state changed
	target      bool        // the plan assigns it to this member
	doubted     bool        // of a claim: rows may name this member anyway, as an earlier outcome is not known
	assigned    *assignment // of held, revoking and releasing
	busy        *assignment // whose work has not returned, of this term or an earlier one
	history     history     // what looks have shown of it
	leases      bool        // the next look has to read its lease rows
	suspect     suspicion   // that it can't be claimed or released
	earlyReturn suspicion   // that its work returns early, if it is released then
	paused      bool        // the program has paused it
}

// become is the one place where a state changes.
func (e *entry) become(s state, look int) { e.state, e.changed = s, look }

// claim takes the partition for one that is to be claimed.
func (e *entry) claim(look int) {
	e.doubted = e.doubted || e.state == unresolved
	e.become(claimed, look)
}

// leftOut ends a claim that another was before.
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
	e.history = history{assumed: a.in.m.config.Lease} // what was seen before is over
	e.become(held, look)
}

// revoke ends what is done under the token, for good.
func (e *entry) revoke(reason error, look int) {
	e.assigned.revoke(reason)
	e.become(revoking, look)
}

// release leaves the partition to a request that frees it.
func (e *entry) release(look int) { e.become(releasing, look) }

// doubt takes in that rows may name this member.
func (e *entry) doubt(look int) {
	e.assigned, e.doubted = nil, true
	e.become(unresolved, look)
}

// clear takes in that nothing is left of this member.
func (e *entry) clear(look int) {
	e.assigned, e.doubted = nil, false
	e.become(free, look)
}

// suspicion is that a partition can't be claimed or released: it is then tried alone, and less and less often.
type suspicion struct {
	since elect.Instant // of the first failure; zero: there is none
	until elect.Instant // when it may be tried again
	pause time.Duration // the last one
	err   error
}

// fail takes in that the partition failed alone.
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

// left is how long the partition is not to be tried.
func (s *suspicion) left(now elect.Instant) time.Duration {
	if s.since == (elect.Instant{}) {
		return 0
	}
	return max(time.Duration(s.until.Mono-now.Mono), 0)
}

// inventory is the partitions of a group, as this member has them.
type inventory struct {
	all    []*entry // in the order of their names
	byLock map[string]*entry
	held   atomic.Int64 // how many are acted on

	suspects []*entry // those that could not be claimed or released
}

// suspect takes in that a partition failed alone.
func (v *inventory) suspect(e *entry, c elect.Clock, lease time.Duration, err error) {
	if e.suspect.since == (elect.Instant{}) {
		v.suspects = append(v.suspects, e)
	}
	e.suspect.fail(c, lease, err)
}

// illegible takes in that the rows of a partition can't be read.
func (v *inventory) illegible(e *entry, now elect.Instant, err error) {
	if e.suspect.since == (elect.Instant{}) {
		e.suspect = suspicion{since: now, err: err}
		v.suspects = append(v.suspects, e)
	}
}

// absolve trusts what is not to be claimed or released any more, and what can be read again.
func (v *inventory) absolve(legible []*entry) {
	for _, e := range slices.Clone(v.suspects) {
		if e.state == free && !e.target || e.suspect.pause == 0 && slices.Contains(legible, e) {
			v.trust(e)
		}
	}
}

// trust takes in that a partition could be claimed or released, or is not to be any more.
func (v *inventory) trust(e *entry) {
	e.suspect = suspicion{}
	v.suspects = slices.DeleteFunc(v.suspects, func(s *entry) bool { return s == e })
}

// begin is for a new Run: nothing is under way.
func (v *inventory) begin() {
	for _, e := range v.all {
		e.clear(0)
		e.target, e.history, e.leases, e.suspect, e.earlyReturn = false, history{}, false, suspicion{}, suspicion{}
	}
	v.suspects = nil
}

// termEnded takes in that a member's term is over, and with it all that it had. Work that has not returned stays busy.
func (v *inventory) termEnded(reason error) {
	for _, e := range v.all {
		if e.assigned != nil && e.state == held {
			e.revoke(reason, 0)
		}
		e.clear(0)
		e.target, e.leases = false, false
	}
}

// assign takes in which partitions the plan assigns to this member.
func (v *inventory) assign(indexes []int) {
	for _, e := range v.all {
		e.target = false
	}
	for _, i := range indexes {
		v.all[i].target = true
	}
}

// works reports whether work of this term has not returned: any, or only such as was revoked.
func (v *inventory) works(t *term, revoked bool) bool {
	for _, e := range v.all {
		if a := e.busy; a != nil && a.in == t && (e.state == revoking || !revoked) {
			return true
		}
	}
	return false
}

// busy is how many partitions' work has not returned, of whatever term, and the first of them.
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

// anyBusy reports whether work has not returned, of whatever term.
func (v *inventory) anyBusy() bool { n, _ := v.busy(); return n > 0 }

// holds is how many partitions are had, acted on or not.
func (v *inventory) holds() (n int) {
	for _, e := range v.all {
		if e.assigned != nil {
			n++
		}
	}
	return n
}

// assignment is one time of having a partition, from its confirmation under a token until it is released. The loop owns
// what is not said to be others'.
type assignment struct {
	*entry
	in    *term
	token table.Token

	ctx    context.Context // ends when it is revoked, or the term ends
	cancel context.CancelCauseFunc
	since  elect.Instant // when it was revoked
	lost   bool          // its lease row is gone: it is not released, but looked after
	let    bool          // it is not to wait for its work

	began elect.Instant // its work
	pause elect.Backoff // before work that returned early begins again
	again alarm
	said  bool // that its work returned early
}

// valid reports whether the partition may be acted on, by anybody's reading of the clock.
func (a *assignment) valid() bool {
	return a.ctx.Err() == nil && a.in.lease.Held() && a.in.looks.left() > 0
}

// revoke ends the context of the work, for good: a token whose work was told to end is never acted on again.
func (a *assignment) revoke(reason error) {
	a.since = a.in.m.config.Clock.Now()
	if a.acted.CompareAndSwap(a, nil) {
		a.in.m.inventory.held.Add(-1)
	}
	a.cancel(reason)
}
