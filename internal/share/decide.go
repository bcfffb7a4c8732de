package share

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// After each poll of the group, two functions decide what to do about each partition. The first one, view, summarizes
// the rows that the poll has read. The second one, decideEntry, chooses an action. docs/groups.md has the decision table.

// partitionView summarizes what a poll has read about one partition. It is zero if the poll did not read the partition.
type partitionView struct {
	read       bool
	later      bool          // skipped, because too many partitions are wanted; a later poll reads it
	gone       bool          // the partition is held, but its lease row is missing
	unreadable bool          // its rows can't be read, or a newer version wrote them
	own        bool          // rows name this member's term
	wait       time.Duration // until it can be claimed; 0: now; never: another member owns it
	row        table.Observation
}

// taken reports whether another holder has the partition: a member, or an operator's plain lock.
func (x partitionView) taken() bool {
	return x.read && !x.unreadable && !x.own && (x.wait == never || x.wait > 0 && x.row.Confirmed())
}

// local is a member's own state, and its state for one partition.
type local struct {
	planned bool          // the assignment of partitions to members is known
	target  bool          // the partition is assigned to this member
	busy    bool          // the work under an earlier token has not returned
	acting  bool          // the term is held and continues
	leaving bool          // the term is being given up
	room    bool          // one more partition may start to move now
	backoff time.Duration // until the partition may be tried again
}

// action is what to do about one partition.
type action int

const (
	toLeave     action = iota // do nothing
	toClaim                   // send a claim: free, unresolved → claimed
	toRevoke                  // cancel its work: held → revoking
	toLose                    // like toRevoke, but without a release, because its lease row was deleted by hand
	toReconcile               // free it in the table, then poll again
	toDoubt                   // free → unresolved
	toClear                   // unresolved → free
	toNote                    // record that its rows can't be read
)

// Special values for the pause before the next poll of a partition. A pause of 0 means an immediate poll.
const (
	NoLook  = never             // no partition asks for one
	awaited = time.Duration(-1) // another member owns it; the pause grows with the time waited so far
)

// decideEntry implements the decision table. It returns what to do about a partition in state s, and how long to pause
// before the partition is polled again. If it returns awaited, the caller chooses the length of the pause.
func decideEntry(s State, x partitionView, l local) (do action, next time.Duration) {
	switch s {
	case Free:
		return decideFree(x, l)
	case Held:
		switch {
		case x.gone:
			return toLose, NoLook
		case !l.acting:
			return toRevoke, NoLook
		case l.planned && !l.target && !l.leaving && l.room: // a leaving member gives up all its partitions anyway
			return toRevoke, NoLook
		}
	case Unresolved:
		return decideUnresolved(x, l)
	}
	return toLeave, NoLook // claimed, revoking, releasing: wait for the request or the work to finish
}

func decideFree(x partitionView, l local) (action, time.Duration) {
	switch {
	case x.read && x.own:
		return toDoubt, 0
	case !l.planned || !l.target || l.busy || !l.acting || l.leaving:
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
	wanted := l.planned && l.target && !l.leaving
	switch {
	case x.later:
		return toLeave, awaited
	case !x.read:
		return toLeave, 0
	case x.unreadable:
		return toNote, awaited
	case !x.own:
		return toClear, 0
	case wanted && (l.busy || !l.acting):
		return toLeave, NoLook
	case l.backoff > 0:
		return toLeave, l.backoff
	case wanted && x.wait == 0:
		return toClaim, NoLook
	case l.planned || l.leaving:
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
	Revoke, Lose     []*Entry
	Taken            []*Entry      // this member wants them, but another holder has them
	Again            bool          // poll again immediately, before taking any other action
	Next             time.Duration // the shortest pause that a partition asks for, or NoLook
	Awaits           bool          // another member owns a partition that this member wants
	More             bool          // this member wants more partitions than the poll has read
	shown            shown
}

// shown is what a poll shows about partitions that need no request.
type shown struct {
	open                             bool // all partitions in the window could be claimed
	doubt, clear, illegible, legible []*Entry
}

// Decide applies the decision table to every partition in the inventory.
func (f Facts) Decide(j Judge) Decisions {
	window, all := f.window()
	inWindow := map[*Entry]bool{}
	for _, e := range window {
		inWindow[e] = true
	}
	d := f.decide(func(e *Entry) partitionView { return f.view(j, e, inWindow[e]) })
	d.shown.open, d.More = len(d.Claim) >= len(window), !all
	return d
}

// ToRevoke returns the next partitions that must move, between two polls.
func (f Facts) ToRevoke() []*Entry {
	return f.decide(func(*Entry) partitionView { return partitionView{later: true} }).Revoke
}

func (f Facts) decide(see func(*Entry) partitionView) (d Decisions) {
	d.Next = NoLook
	room := f.Many()
	for _, e := range f.Inventory.All {
		x := see(e)
		l := local{planned: f.Planned, acting: f.Acting, leaving: f.Leaving, target: e.wanted(), busy: e.Busy != nil,
			room: room > 0 && !f.Moving, backoff: max(e.suspect.left(f.Now), e.EarlyReturn.left(f.Now))}
		if x.read && !x.unreadable {
			d.shown.legible = append(d.shown.legible, e)
		}
		if l.target && e.State == Free && x.taken() {
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
		case toLose:
			d.Lose = append(d.Lose, e)
		case toDoubt:
			d.shown.doubt = append(d.shown.doubt, e)
		case toNote:
			d.shown.illegible = append(d.shown.illegible, e)
		case toClear:
			d.shown.clear = append(d.shown.clear, e)
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

// Conclude records what the poll has shown about partitions that need no request.
func (f Facts) Conclude(d Decisions, s table.GroupSnapshot) {
	v := f.Inventory
	v.Doubt(d.shown.doubt...)
	v.Clear(d.shown.clear...)
	for _, e := range d.shown.illegible {
		v.Suspects.illegible(e, f.Now, s.Unreadable[e.Lock])
	}
	v.Suspects.absolve(d.shown.legible, d.Taken)
	v.open = d.shown.open
	if d.More && !d.Again {
		v.turn += 2 * f.Batch // continue with the next window
	}
}

// view summarizes what the last poll has read about a partition. If the partition's state has changed since the poll
// was sent, the rows may be out of date, so the partition counts as not read.
func (f Facts) view(j Judge, e *Entry, inWindow bool) (x partitionView) {
	if e.State == Held {
		valid, read := j.Snapshot.LeaseExists[e.Ref()]
		return partitionView{gone: read && !valid}
	}
	o, read := j.Snapshot.Partitions[e.Lock]
	switch {
	case !read || e.changed >= f.Inventory.Look:
		return partitionView{later: !read && !inWindow && e.State == Free}
	case f.Inventory.reconciling[e]:
		return partitionView{read: true, own: true, wait: never, row: o.Observation}
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
