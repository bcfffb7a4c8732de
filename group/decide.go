package group

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Pure functions turn a look into a decision: first what the look shows of each partition, then what is done about it.
// docs/groups.md has the table.

// partitionView is what a look shows of one partition to this member. It is zero if the look did not read the
// partition.
type partitionView struct {
	read       bool
	later      bool          // left out on purpose, because many are wanted; its turn comes
	gone       bool          // a held partition's lease row is missing
	unreadable bool          // its rows can't be read, or a newer version wrote them
	own        bool          // rows name this member's term
	wait       time.Duration // until it can be claimed: 0 now; never: until another member releases it or is over
	row        table.Observation
}

// local is what this member knows of itself and of one partition.
type local struct {
	planned bool          // it is known which partition is assigned to which member
	target  bool          // the partition is assigned to this one
	busy    bool          // the work under an earlier token has not returned
	acting  bool          // the term is held and continues
	leaving bool          // the term is being given up
	room    bool          // for one more that moves now
	backoff time.Duration // until it may be tried again
}

// action is what is done about one partition.
type action int

const (
	toLeave     action = iota // as it is
	toClaim                   // send a claim: free, unresolved → claimed
	toRevoke                  // end its work: held → revoking
	toLose                    // the same, without a release: somebody has deleted its lease row
	toReconcile               // free it in the table, and look at it again
	toDoubt                   // free → unresolved
	toClear                   // unresolved → free
	toNote                    // log that it can't be read
)

// The pause before the next look at a partition, if it is neither 0 (at once) nor a time.
const (
	noLook  = never
	awaited = time.Duration(-1) // another member has it: as patient as the wait for it so far
)

// decideEntry is the decision table: what to do about a partition in that state, and when to look at it next. The
// caller turns a wait of never, for another member, into a pause.
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
		case l.planned && !l.target && !l.leaving && l.room: // a leaving member's partitions leave with it
			return toRevoke, noLook
		}
	case unresolved:
		return decideUnresolved(x, l)
	}
	return toLeave, noLook // claimed, revoking, releasing: the request, or the work, continues
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

// facts are the inputs of a decision beside the look.
type facts struct {
	local     // the part that is the same for all partitions
	room  int // how many more may move now
	now   elect.Instant
}

// decisions are what follows from one look. Without a look, they are only what has to be revoked.
type decisions struct {
	claim, reconcile           []table.Observation // in the order of names
	revoke, lose, doubt, clear []*entry
	illegible, legible         []*entry
	again                      bool          // look again at once, before anything is concluded
	next                       time.Duration // the next look that a partition asks for
	awaits                     bool          // another member has something that this one wants
}

// decide goes through the inventory. see says what the look shows of an entry.
func decide(v *inventory, see func(*entry) partitionView, f facts) (d decisions) {
	d.next = noLook
	for _, e := range v.all {
		x, l := see(e), f.local
		l.target, l.busy = e.target && !e.paused, e.busy != nil
		if x.read && !x.unreadable {
			d.legible = append(d.legible, e)
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
