package group

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// A look becomes a decision here, by pure functions: first what the look shows of each partition, then what is done about
// it. docs/groups.md has the table.

// partitionView is what a look shows of one partition to this member. The zero partitionView is of a look that did not read it.
type partitionView struct {
	read       bool
	later      bool          // it was left out on purpose, as much is wanted, and has its turn
	gone       bool          // of one that is held: its lease row is not there
	unreadable bool          // its rows can't be read, or a newer version wrote them
	own        bool          // rows name this member's term
	wait       time.Duration // until it can be claimed: 0 now, never: until another member releases it or is over
	row        table.Observation
}

// local is what this member knows of itself and of one partition.
type local struct {
	planned bool          // it is known what is assigned to which member
	target  bool          // the partition is assigned to this one
	busy    bool          // the work under an earlier token has not returned
	acting  bool          // the term is held and goes on
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
	toLose                    // the same, of one that is not to be released: somebody has deleted its lease row
	toReconcile               // free it in the table, and look at it again
	toDoubt                   // free → unresolved
	toClear                   // unresolved → free
	toNote                    // say that it can't be read
)

// The pause before the next look at a partition, if it is not 0, at once, or a time.
const (
	noLook  = never
	awaited = time.Duration(-1) // it is another member's: as patiently as it has been waited for
)

// decideEntry is the table of the decision: what is done about a partition in that state, and when the next look at it is
// due. A wait of never, of another member, is turned into a pause by those who look.
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
		case l.planned && !l.target && !l.leaving && l.room: // what a member that leaves has goes with it
			return toRevoke, noLook
		}
	case unresolved:
		return decideUnresolved(x, l)
	}
	return toLeave, noLook // claimed, revoking, releasing: the request, or the work, goes on
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

// facts are what a decision goes by beside the look.
type facts struct {
	local     // what is alike for all partitions
	room  int // how many more may move now
	now   elect.Instant
}

// decisions are what follows from one look, or from none: then only what has to be revoked.
type decisions struct {
	claim, reconcile           []table.Observation // in the order of names
	revoke, lose, doubt, clear []*entry
	illegible, legible         []*entry
	again                      bool          // look again at once, before anything is concluded
	next                       time.Duration // the next look that a partition asks for
	awaits                     bool          // something that another member has
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
