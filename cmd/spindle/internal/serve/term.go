package serve

import (
	"time"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// An end is the reason why a term ended, as far as the table shows it.
type end string

const (
	lasting    end = ""
	expired    end = "expired"     // its holder sent no heartbeat for a lease
	released   end = "released"    // its holder released the lock, or an operator broke it
	handedOver end = "handed over" // its holder announced that it was leaving, and released the lock
	reclaimed  end = "reclaimed"   // the same holder has the next term
	deleted    end = "deleted"     // its rows were deleted
	unseen     end = "unseen"      // the reads were too far apart to show why it ended
	missed     end = "missed"      // it began and ended between two reads, so its holder is not known either
)

// A term is a period during which one holder held a lock, or several such periods merged into one.
type term struct {
	token  table.Token
	holder string // "" if unknown, or if the merged terms had different holders
	from   time.Time
	to     time.Time // zero while the term lasts
	end    end
	over   bool      // for good; an expired term can revive if its holder was only slow
	seen   time.Time // the time of the last read that showed it
	count  int       // the number of terms that were merged into it
	held   time.Duration

	leaving bool
}

// termIn returns the current term of a listing, if there is one.
func termIn(l operator.Listing) (t term, ok bool) {
	switch l.State() {
	case operator.Held, operator.Leaving, operator.Expired, operator.Unreadable:
		t = term{token: l.Token, holder: l.Holder(), from: l.Since(), count: 1}
		t.goesOn(l)
		return t, true
	}
	return t, false
}

// goesOn updates the term from a listing that still shows it, and reports whether the term has changed.
func (t *term) goesOn(l operator.Listing) bool {
	was := *t
	t.seen, t.to, t.end = l.At, time.Time{}, lasting
	if holder := l.Holder(); holder != "" {
		t.holder = holder
	}
	switch l.State() {
	case operator.Leaving:
		t.leaving = true
	case operator.Expired:
		t.to, t.end = l.Heartbeat.Add(l.LeaseRecord.Lease), expired
	}
	return t.to != was.to || t.end != was.end || t.holder != was.holder
}

// ends updates the term from l, the first listing that no longer shows it. Was is the previous listing.
func (t *term) ends(was, l operator.Listing) {
	t.over = true
	if t.end == expired {
		return
	}
	t.to = l.Since() // of the release, or of the next claim
	switch {
	case !l.Exists:
		t.to, t.end = l.At, deleted
	case was.LeaseRecord == nil:
		t.end = released
	case !t.to.Before(was.Heartbeat.Add(was.LeaseRecord.Lease)):
		// Heartbeats after the previous read may have extended the lease. They probably did not if that read had found the
		// holder late, and the next claim followed within half a lease. If a later read finds the lock released, it must
		// itself follow that soon, because the holder may have recovered and released the lock.
		within := t.to.Sub(was.At)
		if l.Heartbeat.IsZero() {
			within = l.At.Sub(was.At)
		}
		if t.end = unseen; within < was.LeaseRecord.Lease/2 {
			t.to, t.end = was.Heartbeat.Add(was.LeaseRecord.Lease), expired
		}
	case t.leaving:
		t.end = handedOver
	case !l.Heartbeat.IsZero() && l.Holder() == t.holder:
		t.end = reclaimed
	default:
		t.end = released
	}
}

// merged returns two consecutive terms as one.
func merged(a, b term) term {
	held := func(t term) time.Duration {
		if t.count > 1 {
			return t.held
		}
		return t.to.Sub(t.from)
	}
	m := b
	m.from, m.count, m.held = a.from, a.count+b.count, held(a)+held(b)
	if a.holder != b.holder {
		m.holder = ""
	}
	return m
}
