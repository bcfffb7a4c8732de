package share

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// partitionView is what a poll has read about one partition. If the poll did not read the partition, only the field
// later can be set.
type partitionView struct {
	read       bool
	later      bool          // skipped, because too many partitions are wanted; a later poll reads it
	unreadable error         // why its rows can't be read, if that keeps this member from claiming it
	own        bool          // rows name this member's term
	wait       time.Duration // until it can be claimed; 0: now; never: another member owns it
	row        table.Observation
}

// taken reports whether another member, or the holder of a plain lock, has the partition.
func (x partitionView) taken() bool {
	return x.read && x.unreadable == nil && !x.own && (x.wait == never || x.wait > 0 && x.row.Confirmed())
}

// Special values for the pause before the next poll of a partition. A pause of 0 means an immediate poll.
const (
	NoLook  = never             // no partition needs a poll
	awaited = time.Duration(-1) // the length of the wait is unknown; the pause grows with the time waited so far
)

// decideEntry returns a partition's next state, and how long to pause before the partition is polled again. If the
// pause is the constant awaited, the caller chooses its length. The parameter room says whether one more partition may
// start to move now. TestTheTableOfTheDecision lists all decisions.
func (f Facts) decideEntry(e *Entry, x partitionView, room bool) (to State, next time.Duration) {
	switch e.State {
	case Free:
		return f.decideFree(e, x)
	case Held: // a leaving member gives up all its partitions anyway
		if !f.Acting || f.Planned && !e.Wanted() && !f.Leaving && room {
			return Revoking, NoLook
		}
	case Unresolved:
		return f.decideUnresolved(e, x)
	}
	return e.State, NoLook // claimed, revoking, releasing, reconciling: wait for the request or the work to finish
}

func (f Facts) decideFree(e *Entry, x partitionView) (State, time.Duration) {
	switch backoff := e.Backoff(f.Now); {
	case x.read && x.own:
		return Unresolved, 0
	case !f.Planned || !e.Wanted() || e.Busy != nil || !f.Acting || f.Leaving:
		return Free, NoLook
	case backoff > 0:
		return Free, backoff
	case x.later:
		return Free, awaited
	case !x.read:
		return Free, 0
	case x.unreadable != nil, x.wait == never:
		return Free, awaited
	case x.wait > 0:
		return Free, x.wait
	}
	return Claimed, NoLook
}

func (f Facts) decideUnresolved(e *Entry, x partitionView) (State, time.Duration) {
	wanted := f.Planned && e.Wanted() && !f.Leaving
	backoff := e.Suspect.left(f.Now)
	if wanted {
		backoff = e.Backoff(f.Now)
	}
	switch {
	case !x.read:
		return Unresolved, 0
	case x.unreadable != nil:
		return Unresolved, awaited
	case !x.own:
		return Free, 0
	case wanted && (e.Busy != nil || !f.Acting):
		return Unresolved, NoLook
	case backoff > 0:
		return Unresolved, backoff
	case wanted && x.wait == 0:
		return Claimed, NoLook
	case f.Planned || f.Leaving:
		return Reconciling, NoLook
	}
	return Unresolved, awaited
}

// Facts are the inputs of a decision other than the rows that the poll has read.
type Facts struct {
	Inventory *Inventory
	Planned   bool // the assignment of partitions to members is known
	Acting    bool // the term is held and continues
	Leaving   bool // the term is being given up
	Moving    bool // a batch of partitions is moving, so no other partition may start to move now
	Batch     int  // the maximum number of partitions in a commit
	Now       elect.Instant
}

// Many returns how many partitions start to move together: half as many as one commit could release. The larger the
// batch, the longer its partitions are without work.
func (f Facts) Many() int { return max(f.Batch/2, 1) }

// Decisions are the actions to take after one poll.
type Decisions struct {
	Claim, Reconcile []table.Observation // sorted by name
	Revoke           []*Entry
	Taken            []*Entry      // this member wants them, but another holder has them
	Again            bool          // poll again immediately, before any claim or reconciliation
	Next             time.Duration // the shortest pause that a partition needs, or NoLook
	Awaits           bool          // at least one partition's pause is the constant awaited
	More             bool          // this member wants more partitions than the poll has read
}

// Decide applies the decision table to every partition in the inventory. If a partition becomes free or unresolved, it
// also records the new state. The caller records the other changes when it acts on the decisions.
func (f Facts) Decide(j Judge) Decisions {
	window, all := f.window()
	d := f.decide(func(e *Entry) partitionView { return f.view(j, e, !all) })
	d.More = !all
	f.Inventory.open = len(d.Claim) >= len(window)
	if d.More && !d.Again {
		f.Inventory.turn += 2 * f.Batch // continue with the next window
	}
	return d
}

// ToRevoke returns the next batch of partitions to revoke, between two polls.
func (f Facts) ToRevoke() []*Entry {
	return f.decide(func(*Entry) partitionView { return partitionView{later: true} }).Revoke
}

func (f Facts) decide(see func(*Entry) partitionView) (d Decisions) {
	d.Next = NoLook
	room := f.Many()
	for _, e := range f.Inventory.All {
		x := see(e)
		taken := e.Wanted() && e.State == Free && x.taken()
		if taken {
			d.Taken = append(d.Taken, e)
		}
		if x.unreadable != nil {
			e.Suspect.illegible(f.Now, x.unreadable)
		}
		to, next := f.decideEntry(e, x, room > 0 && !f.Moving)
		switch {
		case to == e.State:
		case to == Claimed:
			d.Claim = append(d.Claim, x.row)
		case to == Reconciling:
			d.Reconcile = append(d.Reconcile, x.row)
		case to == Revoking:
			room--
			d.Revoke = append(d.Revoke, e)
		case to == Unresolved:
			f.Inventory.Doubt(e)
		case to == Free:
			f.Inventory.Clear(e)
		}
		if taken || e.done() || e.Suspect.pause == 0 && x.read && x.unreadable == nil {
			e.Suspect = Suspicion{}
		}
		switch next {
		case awaited:
			d.Awaits = true
		case 0:
			d.Again = true
		default:
			d.Next = min(d.Next, next)
		}
	}
	return d
}

// view summarizes what the last poll has read about a partition. If the partition's state has changed since the poll
// was sent, the rows may be out of date, so the partition counts as not read. If more is true, the poll left out some
// of the wanted partitions.
func (f Facts) view(j Judge, e *Entry, more bool) (x partitionView) {
	o, read := j.Snapshot.Partitions[e.Lock]
	if e.State == Held || !read || e.changed >= f.Inventory.Look {
		return partitionView{later: more && !read && e.State == Free}
	}
	x = partitionView{read: true, row: o, own: j.names(o)}
	x.wait, x.unreadable = j.claimableIn(o, e.history)
	if e.State != Free {
		x.unreadable = j.Snapshot.Unreadable[e.Lock]
	}
	return x
}
