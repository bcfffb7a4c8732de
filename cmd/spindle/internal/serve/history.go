package serve

import (
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const (
	kept     = time.Hour // how long a term is remembered after its end
	maxTerms = 128       // per lock; if there are more, the older ones are merged
)

// A lock has everything that the server knows about one lock.
type lock struct {
	id int // identifies the lock in frames
	operator.Listing
	known      time.Time // the time from which on its terms are known
	terms      []term
	changes    int // terms that began since the first read
	jeopardies int // how often its holder sent no heartbeat for two thirds of the lease
	late       bool
	kind       table.LockKind // its purpose, from the last read that showed it
	expected   bool           // it should always be held
	shown      bool           // on pages
}

// holder returns the lock's holder. It uses the holder that the history has recorded for the current term, because the
// last read may not have shown it.
func (k *lock) holder() string {
	if n := len(k.terms); n > 0 && !k.terms[n-1].over && k.terms[n-1].token == k.Token {
		return k.terms[n-1].holder
	}
	return k.Holder()
}

// A history accumulates what the reads of a table have shown. Its times are by Spanner's clock.
type history struct {
	at       time.Time // of the last read
	locks    map[string]*lock
	ids      int
	expected map[string]bool // locks that should always be held
	skips    bool            // reads skip released locks
	named    map[string]bool // locks that are read even if they are released
}

// A touch describes how a lock has changed since the previous read.
type touch struct {
	*lock
	whole bool // more than its heartbeat has changed
	tail  int  // the number of its latest terms that have changed
}

// see adds the result of a read to the history. It returns the locks that have changed, and the ids of the locks that
// pages must remove.
func (h *history) see(found []operator.Listing, at time.Time) (touched []touch, forgotten []int) {
	first := h.locks == nil
	if first {
		h.locks = make(map[string]*lock, len(found))
	}
	h.at = at
	present := make(map[string]bool, len(found))
	follow := func(l operator.Listing) {
		k := h.locks[l.Name]
		if k == nil {
			k = h.meet(l, first)
		}
		if t := k.follow(l, first); t.whole || !k.Heartbeat.Equal(l.Heartbeat) {
			touched = append(touched, t)
		}
		if k.Listing = l; l.Kind() != "" {
			k.kind = l.Kind()
		}
	}
	for _, l := range found {
		present[l.Name] = true
		if k := h.locks[l.Name]; k != nil && l.State() == operator.Free && !h.named[l.Name] {
			l.Observation = h.absent(k).Observation // the read shows only the work that was done under the lock
		}
		follow(l)
	}
	for name, k := range h.locks {
		k.forget(at.Add(-kept))
		switch {
		case present[name]:
		case k.State() != h.absent(k).State(), k.Done.Key != "", k.Undone != nil, len(k.Waiters) > 0:
			follow(h.absent(k))
		case len(k.terms) == 0:
			delete(h.locks, name)
			forgotten = append(forgotten, k.id)
		}
	}
	return h.show(touched, forgotten)
}

// absent returns a listing for a lock that is missing from the last read. Usually, the lock has no row, and is
// therefore free. However, if reads skip released locks and the lock was released when it was last seen, absent returns
// the previous listing, because the lock is still released or its row was pruned.
func (h *history) absent(k *lock) operator.Listing {
	l := operator.Listing{Observation: table.Observation{Name: k.Name}}
	if h.skips && k.State() == operator.Released {
		l.Observation = k.Observation
	}
	l.At = h.at
	return l
}

// meet adds a lock to the history. A lock that the first read finds may be old, and nothing is known about it before
// its current term or its last release. A lock that a later read finds had no row before.
func (h *history) meet(l operator.Listing, first bool) *lock {
	k := &lock{id: h.ids, known: l.At, expected: h.expected[l.Name]}
	k.Name = l.Name
	if first && l.Exists && l.Token != 0 {
		k.known = l.Since()
	}
	h.ids++
	h.locks[l.Name] = k
	return k
}

// follow updates the terms of a lock from a new listing. The lock's own Listing must still be the previous one.
func (k *lock) follow(l operator.Listing, first bool) touch {
	t := touch{lock: k, whole: first || k.differs(l)}
	now, shown := termIn(l)
	var last *term
	if n := len(k.terms); n > 0 && !k.terms[n-1].over {
		last = &k.terms[n-1]
	}
	switch same := last != nil && shown && last.token == now.token; {
	case same && last.goesOn(l):
		t.tail = 1
	case same:
	case last != nil:
		last.over = true
		last.to, last.end = model.Ending(k.Listing, l)
		t.tail = 1
		fallthrough
	case shown:
		if shown {
			t.tail += k.begin(now, first)
		}
	case k.State() == operator.Released && l.State() == operator.Released && k.Token != l.Token:
		t.tail = k.begin(term{from: k.At, to: l.Since(), end: model.EndMissed, over: true, seen: k.At, count: 1}, first)
	}
	t.tail = min(t.tail, len(k.terms)) // the term that ended may be among the merged ones
	k.judge(l)
	t.whole = t.whole || t.tail > 0
	return t
}

// differs reports whether a new listing shows any change other than a new heartbeat.
func (k *lock) differs(l operator.Listing) bool {
	return k.At.IsZero() || k.State() != l.State() || k.Token != l.Token || k.Holder() != l.Holder() || k.Writer != l.Writer || k.Member != l.Member ||
		k.Done != l.Done || model.Problem(k.Listing) != model.Problem(l) || len(k.Waiters) != len(l.Waiters) || waitingSince(k.Listing) != waitingSince(l)
}

// begin adds a term, and returns how many of the latest terms have changed.
func (k *lock) begin(t term, first bool) int {
	if !first {
		k.changes++
	}
	k.terms = append(k.terms, t)
	if len(k.terms) <= maxTerms {
		return 1
	}
	older := k.terms[:maxTerms/2]
	var shorter []term
	for i := 0; i+1 < len(older); i += 2 {
		shorter = append(shorter, merged(older[i], older[i+1]))
	}
	k.terms = append(shorter, k.terms[len(older):]...)
	return len(k.terms)
}

// judge counts how many times the holder has sent no heartbeat for two thirds of its lease. It skips partitions,
// because they have no heartbeats of their own.
func (k *lock) judge(l operator.Listing) {
	late := l.LeaseRecord != nil && l.Member == (table.LeaseRef{}) && !l.Heartbeat.IsZero() && l.At.Sub(l.Heartbeat) >= l.LeaseRecord.Lease*2/3
	if late && !k.late {
		k.jeopardies++
	}
	k.late = late
}

// forget drops terms that ended before then.
func (k *lock) forget(then time.Time) {
	n := 0
	for n < len(k.terms) && k.terms[n].over && k.terms[n].to.Before(then) {
		n++
	}
	if n > 0 {
		k.terms = append([]term(nil), k.terms[n:]...)
	}
	if k.known.Before(then) {
		k.known = then
	}
}
