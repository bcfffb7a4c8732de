package share

import (
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// State is the state of a partition from this member's point of view. Only the code in this file changes it.
type State int

const (
	Free        State = iota // this member does not own it, although work under an earlier token may still be running
	Claimed                  // its claim and confirmation are queued or in progress
	Held                     // confirmed; this member acts on it
	Revoking                 // no longer acted on; its work's context is canceled
	Releasing                // its work has returned, and its release is in progress
	Unresolved               // rows may name this member, but it neither acts on the partition nor has a request in progress
	Reconciling              // its rows name this member, and a request that frees it is queued or in progress
)

func (s State) String() string {
	return [...]string{"free", "claimed", "held", "revoking", "releasing", "unresolved", "reconciling"}[s]
}

// Entry is one partition in the inventory.
type Entry struct {
	Name, Lock  string // never change
	State       State
	Target      bool        // the plan assigns it to this member
	Paused      Pause       // whether the program has paused it
	Assigned    *Assignment // for Held, Revoking and Releasing
	Busy        *Assignment // the assignment of this or an earlier term whose work has not returned
	EarlyReturn Suspicion   // set if its work stalled, or returned early and the option is Release
	Suspect     Suspicion   // set if it can't be claimed or released

	changed int     // the number of the last poll sent before the state changed
	doubted bool    // an earlier outcome is unknown, so rows may name this member even if the claim fails
	history history // from earlier polls
}

// Pause says whether the program has paused a partition.
type Pause int

const (
	Running Pause = iota // not paused
	Paused
	Marked // paused, and the table shows it in this term
)

// Assignment is one period during which this member owns a partition under one token. It begins when a claim is
// confirmed, and ends when the partition is released.
type Assignment struct {
	Token    table.Token
	Since    elect.Instant // when the assignment was revoked
	Reminded time.Duration // how long it had been revoked at the last warning that its work has not returned
	Lost     bool          // its lease row is missing, so the partition is polled instead of being released
	Let      bool          // the release does not wait for the work
	Ended    int           // how many terms have ended since it began
}

// Ref returns the key of the entry's lease row.
func (e *Entry) Ref() table.LeaseRef { return table.LeaseRef{Name: e.Lock, Token: e.Assigned.Token} }

// done reports whether the partition needs neither a claim nor a release.
func (e *Entry) done() bool { return e.State == Free && !e.Wanted() }

// Wanted reports whether the member should own the partition.
func (e *Entry) Wanted() bool { return e.Target && e.Paused == Running }

// Inventory holds a group's partitions as this member sees them.
type Inventory struct {
	List plan.List
	All  Entries // sorted by name, like the list
	Look int     // the number of the last poll sent

	byLock map[string]*Entry
	turn   int  // the position of the window among the wanted partitions
	open   bool // all partitions in the window of the last poll could be claimed
}

// NewInventory returns the inventory of a group's partitions. The names must be sorted.
func NewInventory(group string, names []string) *Inventory {
	v := &Inventory{List: plan.NewList(names), byLock: make(map[string]*Entry, len(names))}
	for _, n := range names {
		e := &Entry{Name: n, Lock: table.PartitionName(group, n)}
		v.All, v.byLock[e.Lock] = append(v.All, e), e
	}
	return v
}

// Of returns the entry of a lock, or nil if the partition is not in this member's list.
func (v *Inventory) Of(lock string) *Entry { return v.byLock[lock] }

// become is the only function that changes a state.
func (v *Inventory) become(s State, e *Entry) { e.State, e.changed = s, v.Look }

// LeftOut ends a claim that did not get the partition, for example because another member was first.
func (v *Inventory) LeftOut(e *Entry) {
	if e.doubted {
		v.become(Unresolved, e)
	} else {
		v.become(Free, e)
	}
}

// Hold begins an assignment after its claim was confirmed. The lease is the member's.
func (v *Inventory) Hold(e *Entry, token table.Token, lease time.Duration) {
	e.Assigned = &Assignment{Token: token}
	e.history = history{assumed: lease} // earlier observations are out of date
	v.become(Held, e)
	e.Suspect = Suspicion{}
}

// Revoke records that the assignment was revoked. The member never acts under the assignment's token again.
func (v *Inventory) Revoke(e *Entry, now elect.Instant) {
	e.Assigned.Since = now
	v.become(Revoking, e)
}

// Release marks up to the given number of revoked partitions as being released, and returns them. It chooses partitions
// whose work has returned, or whose release does not wait for the work. It also reports whether there are more such
// partitions, and whether it found any that can't be released because their lease rows are missing.
func (v *Inventory) Release(most int) (releasing []*Entry, more, lost bool) {
	for _, e := range v.All {
		switch {
		case e.State != Revoking || e.Busy != nil && e.Busy == e.Assigned && !e.Assigned.Let:
		case e.Assigned.Lost:
			v.Doubt(e)
			lost = true
		case len(releasing) == most:
			more = true
		default:
			v.become(Releasing, e)
			releasing = append(releasing, e)
		}
	}
	return releasing, more, lost
}

// Doubt records that rows may name this member.
func (v *Inventory) Doubt(entries ...*Entry) {
	for _, e := range entries {
		e.Assigned, e.doubted = nil, true
		v.become(Unresolved, e)
	}
}

// Clear records that no row names this member any longer.
func (v *Inventory) Clear(entries ...*Entry) {
	for _, e := range entries {
		e.Assigned, e.doubted = nil, false
		v.become(Free, e)
	}
}

// Claim marks partitions as being claimed, and returns their rows, grouped into commits. A commit has at most the given
// number of rows, and each suspect partition gets a commit of its own.
func (v *Inventory) Claim(rows []table.Observation, most int) (commits [][]table.Observation) {
	var together []table.Observation
	for _, o := range rows {
		e := v.byLock[o.Name]
		v.become(Claimed, e)
		if e.Suspect.failed() {
			commits = append(commits, []table.Observation{o})
		} else {
			together = append(together, o)
		}
	}
	return slices.AppendSeq(commits, slices.Chunk(together, most))
}

// Reconcile marks partitions as being reconciled, because their rows name this member. It returns the rows, grouped
// into commits.
func (v *Inventory) Reconcile(rows []table.Observation, most int) [][]table.Observation {
	for _, o := range rows {
		v.become(Reconciling, v.byLock[o.Name])
	}
	return slices.Collect(slices.Chunk(rows, most))
}

// Sends reports whether a queued claim or reconciliation of the partition must still be sent. A claim is sent only if
// the term goes on, the partition is still wanted, and earlier work on it has returned. If a claim must not be sent,
// Sends also ends it.
func (v *Inventory) Sends(lock string, goesOn bool) bool {
	switch e := v.byLock[lock]; {
	case e.State == Reconciling:
		return true
	case e.Wanted() && goesOn && e.Busy == nil:
		e.doubted = true // the client may retry internally, so a commit can be refused because an earlier attempt was applied
		return true
	default:
		v.LeftOut(e)
		return false
	}
}

// TermEnded ends all assignments, because the member's term has ended. Entries whose work has not returned stay busy.
func (v *Inventory) TermEnded() {
	v.Look, v.turn, v.open = 0, 0, false
	v.Clear(v.All...)
	for _, e := range v.All {
		e.Target, e.Paused = false, min(e.Paused, Paused)
		if e.Busy != nil {
			e.Busy.Ended++
		}
	}
}

// Assign records which partitions the plan assigns to this member.
func (v *Inventory) Assign(indexes []int) {
	for _, e := range v.All {
		e.Target = false
	}
	for _, i := range indexes {
		v.All[i].Target = true
	}
	for _, e := range v.All {
		if !e.Target {
			e.Paused = min(e.Paused, Paused) // another member's claim replaces the mark
		}
	}
}

// Pause records which partitions the program has paused, and returns the changes.
func (v *Inventory) Pause(names map[string]bool) (paused, resumed []*Entry) {
	for _, e := range v.All {
		switch is := names[e.Name]; {
		case is && e.Paused == Running:
			e.Paused = Paused
			paused = append(paused, e)
		case !is && e.Paused != Running:
			e.Paused = Running
			resumed = append(resumed, e)
		}
	}
	return paused, resumed
}

// Unmarked returns the locks of paused partitions that the table should show as paused, but may not yet.
func (v *Inventory) Unmarked() (locks []string) {
	for _, e := range v.All {
		if e.Paused == Paused && e.Target && e.State == Free {
			locks = append(locks, e.Lock)
		}
	}
	return locks
}

// Mark records that the table shows these partitions as paused, if they have been free since the given poll. Otherwise,
// a claim has replaced the mark.
func (v *Inventory) Mark(locks []string, look int) {
	for _, lock := range locks {
		if e := v.byLock[lock]; e.Paused == Paused && e.Target && e.State == Free && e.changed <= look {
			e.Paused = Marked
		}
	}
}
