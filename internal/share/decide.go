package share

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// partitionView summarizes what a poll has read about one partition. It is zero if the poll did not read the partition.
type partitionView struct {
	read       bool
	later      bool          // skipped, because too many partitions are wanted; a later poll reads it
	unreadable bool          // its rows can't be read, or a newer version wrote them
	own        bool          // rows name this member's term
	wait       time.Duration // until it can be claimed; 0: now; never: another member owns it
	row        table.Observation
}

// taken reports whether another holder has the partition: a member, or an operator's plain lock.
func (x partitionView) taken() bool {
	return x.read && !x.unreadable && !x.own && (x.wait == never || x.wait > 0 && x.row.Confirmed())
}

// local is what a member knows about itself, and about one partition.
type local struct {
	Facts
	target  bool          // the partition is assigned to this member
	busy    bool          // the work under an earlier token has not returned
	room    bool          // one more partition may start to move now
	backoff time.Duration // until the partition may be tried again
}

// action is what to do about one partition.
type action int

const (
	toLeave     action = iota // do nothing
	toClaim                   // send a claim: free, unresolved → claimed
	toRevoke                  // cancel its work: held → revoking
	toReconcile               // free it in the table: unresolved → reconciling
	toDoubt                   // free → unresolved
	toClear                   // unresolved → free
	toNote                    // record that its rows can't be read
)

// Special values for the pause before the next poll of a partition. A pause of 0 means an immediate poll.
const (
	NoLook  = never             // no partition asks for one
	awaited = time.Duration(-1) // another member owns it; the pause grows with the time waited so far
)

// decideEntry implements the decision table in docs/groups.md. It returns what to do about a partition in state s, and how long to pause
// before the partition is polled again. If it returns awaited, the caller chooses the length of the pause.
func decideEntry(s State, x partitionView, l local) (do action, next time.Duration) {
	switch s {
	case Free:
		return decideFree(x, l)
	case Held:
		switch {
		case !l.Acting:
			return toRevoke, NoLook
		case l.Planned && !l.target && !l.Leaving && l.room: // a leaving member gives up all its partitions anyway
			return toRevoke, NoLook
		}
	case Unresolved:
		return decideUnresolved(x, l)
	}
	return toLeave, NoLook // claimed, revoking, releasing, reconciling: wait for the request or the work to finish
}

func decideFree(x partitionView, l local) (action, time.Duration) {
	switch {
	case x.read && x.own:
		return toDoubt, 0
	case !l.Planned || !l.target || l.busy || !l.Acting || l.Leaving:
		return toLeave, NoLook
	case l.backoff > 0:
		return toLeave, l.backoff
	case x.later:
		return toLeave, awaited
	case !x.read:
		return toLeave, 0
	case x.unreadable:
		return toNote, awaited
	case x.wait == never:
		return toLeave, awaited
	case x.wait > 0:
		return toLeave, x.wait
	}
	return toClaim, NoLook
}

func decideUnresolved(x partitionView, l local) (action, time.Duration) {
	wanted := l.Planned && l.target && !l.Leaving
	switch {
	case x.later:
		return toLeave, awaited
	case !x.read:
		return toLeave, 0
	case x.unreadable:
		return toNote, awaited
	case !x.own:
		return toClear, 0
	case wanted && (l.busy || !l.Acting):
		return toLeave, NoLook
	case l.backoff > 0:
		return toLeave, l.backoff
	case wanted && x.wait == 0:
		return toClaim, NoLook
	case l.Planned || l.Leaving:
		return toReconcile, NoLook
	}
	return toLeave, awaited
}

// Facts are the inputs of a decision other than the rows that the poll has read.
type Facts struct {
	Inventory *Inventory
	Planned   bool // the assignment of partitions to members is known
	Acting    bool // the term is held and continues
	Leaving   bool // the term is being given up
	Moving    bool // a batch of partitions is moving, so that no more may start to move now
	Batch     int  // how many partitions a commit has at most
	Now       elect.Instant
}

// Many is how many partitions start to move together: half as many as one commit could release. More would take longer,
// and each of them is without work until all of them have moved.
func (f Facts) Many() int { return max(f.Batch/2, 1) }

// Decisions are the actions to take after one poll.
type Decisions struct {
	Claim, Reconcile []table.Observation // sorted by name
	Revoke           []*Entry
	Taken            []*Entry      // this member wants them, but another holder has them
	Again            bool          // poll again immediately, before taking any other action
	Next             time.Duration // the shortest pause that a partition asks for, or NoLook
	Awaits           bool          // another member owns a partition that this member wants
	More             bool          // this member wants more partitions than the poll has read
}

// Decide applies the decision table to every partition in the inventory. It records what the poll has shown about
// partitions that need no request.
func (f Facts) Decide(j Judge) Decisions {
	window, all := f.window()
	inWindow := map[*Entry]bool{}
	for _, e := range window {
		inWindow[e] = true
	}
	d := f.decide(func(e *Entry) partitionView { return f.view(j, e, inWindow[e]) }, j.Snapshot.Unreadable)
	d.More = !all
	f.Inventory.open = len(d.Claim) >= len(window)
	if d.More && !d.Again {
		f.Inventory.turn += 2 * f.Batch // continue with the next window
	}
	return d
}

// ToRevoke returns the next partitions that must move, between two polls.
func (f Facts) ToRevoke() []*Entry {
	return f.decide(func(*Entry) partitionView { return partitionView{later: true} }, nil).Revoke
}

func (f Facts) decide(see func(*Entry) partitionView, unreadable map[string]error) (d Decisions) {
	d.Next = NoLook
	room := f.Many()
	for _, e := range f.Inventory.All {
		x := see(e)
		l := local{Facts: f, target: e.Wanted(), busy: e.Busy != nil,
			room: room > 0 && !f.Moving, backoff: max(e.Suspect.left(f.Now), e.EarlyReturn.left(f.Now))}
		taken := l.target && e.State == Free && x.taken()
		if taken {
			d.Taken = append(d.Taken, e)
		}
		do, next := decideEntry(e.State, x, l)
		switch do {
		case toClaim:
			d.Claim = append(d.Claim, x.row)
		case toReconcile:
			d.Reconcile = append(d.Reconcile, x.row)
		case toRevoke:
			room--
			d.Revoke = append(d.Revoke, e)
		case toDoubt:
			f.Inventory.Doubt(e)
		case toNote:
			e.Suspect.illegible(f.Now, unreadable[e.Lock])
		case toClear:
			f.Inventory.Clear(e)
		}
		if taken || e.done() || e.Suspect.pause == 0 && x.read && !x.unreadable {
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
// was sent, the rows may be out of date, so the partition counts as not read.
func (f Facts) view(j Judge, e *Entry, inWindow bool) (x partitionView) {
	o, read := j.Snapshot.Partitions[e.Lock]
	switch {
	case e.State == Held:
		return partitionView{}
	case !read || e.changed >= f.Inventory.Look:
		return partitionView{later: !read && !inWindow && e.State == Free}
	case e.State == Free:
		_, e.history.leases = j.claimableIn(lockRow(o), e.history)
	default:
		e.history.leases = true
	}
	if e.history.leases && !o.LeasesRead {
		return partitionView{}
	}
	x = partitionView{read: true, row: o.Observation, own: j.names(o), unreadable: o.LeasesRead && j.Snapshot.Unreadable[e.Lock] != nil}
	x.wait, _ = j.claimableIn(o, e.history)
	return x
}
