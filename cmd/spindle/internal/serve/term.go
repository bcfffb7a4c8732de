package serve

import (
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A term is a period during which one holder held a lock, or several such periods merged into one.
type term struct {
	token  table.Token
	holder string // "" if unknown, or if the merged terms had different holders
	from   time.Time
	to     time.Time // zero while the term lasts
	end    model.End // "" while the term lasts
	over   bool      // for good; an expired term can revive if its holder was only slow
	seen   time.Time // the time of the last read that showed it
	count  int       // the number of terms that were merged into it
	held   time.Duration
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
	t.seen, t.to, t.end = l.At, time.Time{}, ""
	if holder := l.Holder(); holder != "" {
		t.holder = holder
	}
	if l.State() == operator.Expired {
		t.to, t.end = l.Heartbeat.Add(l.LeaseRecord.Lease), model.EndExpired
	}
	return t.to != was.to || t.end != was.end || t.holder != was.holder
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
