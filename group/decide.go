package group

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// After each poll of the group, two pure functions decide what to do about each partition. The first one,
// partitionView, summarizes the rows that the poll has read. The second one, decideEntry, chooses an action.
// docs/groups.md has the decision table.

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
	noLook  = never
	awaited = time.Duration(-1) // another member owns it; the pause grows with the time waited so far
)

// decideEntry implements the decision table. It returns what to do about a partition in state s, and how long to pause
// before the partition is polled again. If it returns awaited, the caller chooses the length of the pause.
func decideEntry(s state, x partitionView, l local) (do action, next time.Duration) {
	switch s {
	case free:
		return decideFree(x, l)
	case held:
		switch {
		case x.gone:
			return toLose, noLook
		case !l.acting:
			return toRevoke, noLook
		case l.planned && !l.target && !l.leaving && l.room: // a leaving member gives up all its partitions anyway
			return toRevoke, noLook
		}
	case unresolved:
		return decideUnresolved(x, l)
	}
	return toLeave, noLook // claimed, revoking, releasing: wait for the request or the work to finish
}

func decideFree(x partitionView, l local) (action, time.Duration) {
	switch {
	case x.read && x.own:
		return toDoubt, 0
	case !l.planned || !l.target || l.busy || !l.acting || l.leaving:
		return toLeave, noLook
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
	return toClaim, noLook
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
		return toLeave, noLook
	case l.backoff > 0:
		return toLeave, l.backoff
	case wanted && x.wait == 0:
		return toClaim, noLook
	case l.planned || l.leaving:
		return toReconcile, noLook
	}
	return toLeave, awaited
}

// facts are the inputs of a decision other than the rows that the poll has read.
type facts struct {
	local     // the fields that are the same for all partitions
	room  int // how many more partitions may start to move now
	now   elect.Instant
}

// decisions are the actions to take after one poll. Between polls, they contain only partitions to revoke.
type decisions struct {
	claim, reconcile           []table.Observation // sorted by name
	revoke, lose, doubt, clear []*entry
	illegible, legible         []*entry
	taken                      []*entry      // this member wants them, but another holder has them
	again                      bool          // poll again immediately, before taking any other action
	next                       time.Duration // the shortest pause that a partition asks for
	awaits                     bool          // another member owns a partition that this member wants
}

// decide applies the decision table to every partition in the inventory. The see function returns the view of an entry.
func decide(v *inventory, see func(*entry) partitionView, f facts) (d decisions) {
	d.next = noLook
	for _, e := range v.all {
		x, l := see(e), f.local
		l.target, l.busy = e.target && !e.paused, e.busy != nil
		if x.read && !x.unreadable {
			d.legible = append(d.legible, e)
		}
		if l.target && e.state == free && x.taken() {
			d.taken = append(d.taken, e)
		}
		l.room, l.backoff = f.room > 0, max(e.suspect.left(f.now), e.earlyReturn.left(f.now))
		do, next := decideEntry(e.state, x, l)
		switch do {
		case toClaim:
			d.claim = append(d.claim, x.row)
		case toReconcile:
			d.reconcile = append(d.reconcile, x.row)
		case toRevoke:
			f.room--
			d.revoke = append(d.revoke, e)
		case toLose:
			d.lose = append(d.lose, e)
		case toDoubt:
			d.doubt = append(d.doubt, e)
		case toNote:
			d.illegible = append(d.illegible, e)
		case toClear:
			d.clear = append(d.clear, e)
		}
		switch next {
		case awaited:
			d.awaits = true
		case 0:
			d.again = true
		default:
			d.next = min(d.next, next)
		}
	}
	return d
}
